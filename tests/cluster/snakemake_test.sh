#!/usr/bin/env bash
# Runs scripts/cluster/Snakefile: the shards give what one run gives; a damaged file fails the merge alone, which names
# it, and once the file is sound only its item is made. Environment: VOLPIPE, SAMPLES, CONFIGS. Exit code 77, skipped,
# without snakemake.
set -euo pipefail

if ! command -v snakemake >/dev/null; then
  echo "skipped: no snakemake"
  exit 77
fi
snakefile=$(realpath "$(dirname "$0")/../../scripts/cluster/Snakefile")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

shards() {
  snakemake -s "$snakefile" --cores 2 "$@" --config volpipe="$VOLPIPE" spec="$CONFIGS/demo.json" inputs="in $SAMPLES/shepp_logan.nrrd" \
    out=out threads=1 shards=3 >log 2>&1
}
fail() {
  echo "snakemake_test: $1" >&2
  cat log >&2
  exit 1
}

mkdir in
cp "$SAMPLES"/*.nii.gz in
head -c 100000 "$SAMPLES/head_t1.nii.gz" >in/head_t1.nii.gz
! shards || fail "a damaged file must fail the merge"
grep -q "3 items: 2 ok, 0 done before, 1 failed" log || fail "the merge must say how many items failed"
[[ -s out/volpipe-report.json && ! -e out/complete ]] || fail "the report must stay, the mark must not"

cp "$SAMPLES/head_t1.nii.gz" in
shards --forcerun shard || fail "exit code $?"
grep -q "3 items: 1 ok, 2 done before" log || fail "what was finished must stay"
"$VOLPIPE" run "$CONFIGS/demo.json" in "$SAMPLES/shepp_logan.nrrd" -o single -q --device cpu
for image in head_t1 torso_ct torso_ct_seg shepp_logan; do
  cmp "out/$image.nii.gz" "single/$image.nii.gz"
done
