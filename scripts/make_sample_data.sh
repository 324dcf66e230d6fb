#!/usr/bin/env bash
# Writes sample_data/ anew (or another folder): phantoms, the same on every machine, and their checksums.
#   scripts/make_sample_data.sh VOLPIPE [FOLDER]
set -euo pipefail

volpipe=$(realpath "${1:?usage: scripts/make_sample_data.sh VOLPIPE [FOLDER]}")
folder=${2:-$(dirname "$0")/../sample_data}
mkdir -p "$folder"
cd "$folder"
rm -rf -- *.nii.gz *.nrrd ct_series SHA256SUMS

"$volpipe" phantom torso -o torso_ct.nii.gz --label torso_ct_seg.nii.gz
"$volpipe" phantom head -o head_t1.nii.gz
"$volpipe" phantom shepp_logan -o shepp_logan.nrrd
"$volpipe" phantom series -o ct_series
sha256sum ./*.nii.gz ./*.nrrd ct_series/* >SHA256SUMS
