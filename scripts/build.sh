#!/usr/bin/env bash
# Configures and builds a preset of CMakePresets.json into build/PRESET, and says only what went wrong.
#   scripts/build.sh PRESET [further options of cmake's configuration]
# With TARGET set, that target alone.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=${1:?usage: scripts/build.sh PRESET [OPTION...]}
shift
[[ -n $(command -v nvcc) || ! -x /usr/local/cuda/bin/nvcc ]] || PATH=$PATH:/usr/local/cuda/bin

log=$(mktemp)
trap 'rm -f "$log"' EXIT
started=$SECONDS
cmake --preset "$preset" "$@" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
echo "building volpipe in build/$preset ..."
cmake --build "build/$preset" --target "${TARGET:-all}" >"$log" 2>&1 || { grep -v '^\[' "$log" >&2; exit 1; }
echo "built in $((SECONDS - started)) s"
