#!/usr/bin/env bash
# sample_data/ is whole, and $VOLPIPE writes the same again: files byte for byte once unpacked (compressors differ), and
# volumes by value and geometry.
set -euo pipefail

root=$(realpath "$(dirname "$0")/..")
again=$(mktemp -d)
trap 'rm -rf "$again"' EXIT

cd "$root/sample_data"
sha256sum --check --quiet SHA256SUMS
"$root/scripts/make_sample_data.sh" "$VOLPIPE" "$again"
diff <(cut -c 65- SHA256SUMS) <(cut -c 65- "$again/SHA256SUMS")
for file in *.nii.gz; do cmp <(zcat "$file") <(zcat "$again/$file"); done
for file in ct_series/*; do cmp "$file" "$again/$file"; done
for volume in *.nii.gz *.nrrd ct_series; do
  "$VOLPIPE" compare "$volume" "$again/$volume" >"$again/difference" || { cat "$again/difference"; exit 1; }
done
