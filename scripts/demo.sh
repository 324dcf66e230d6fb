#!/usr/bin/env bash
# From a fresh clone to results: builds volpipe, runs configs/demo.json over sample_data/ into demo_output/ and draws a
# picture of it. Arguments go to `volpipe run`: scripts/demo.sh --device cpu
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh --build

# CUDA code for the GPU of this machine alone; a machine without one needs none.
options=(-DVOLPIPE_CUDA=OFF)
if capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1) && [[ $capability ]]; then
  options=(-DVOLPIPE_CUDA=AUTO -DCMAKE_CUDA_ARCHITECTURES="${capability//./}")
fi
scripts/build.sh demo "${options[@]}"

volpipe=build/demo/bin/volpipe
out=demo_output
"$volpipe" run configs/demo.json sample_data -o "$out" --overwrite "$@"
"$volpipe" preview sample_data/torso_ct.nii.gz "$out/torso_ct.nii.gz" sample_data/torso_ct_seg.nii.gz "$out/torso_ct_seg.nii.gz" \
  sample_data/head_t1.nii.gz "$out/head_t1.nii.gz" -o "$out/preview.png"

cat <<END

results  $out/
report   $out/volpipe-report.json
picture  $out/preview.png   before and after
END
