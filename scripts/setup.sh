#!/usr/bin/env bash
# Installs what volpipe needs to be built and tested on Debian or Ubuntu; does nothing when all is there.
# Needs root or sudo. The CUDA toolkit is never installed: it is used where nvcc is found.
set -euo pipefail

build=(
  g++ cmake ninja-build ccache
  libinsighttoolkit5-dev libcli11-dev nlohmann-json3-dev libspdlog-dev libtbb-dev libisal-dev nettle-dev libkissfft-dev
)
tests=(
  libgtest-dev libgmock-dev libbenchmark-dev zlib1g-dev
  python3-numpy python3-scipy python3-nibabel python3-pytest python3-skimage
  slurm-wlm munge
)

case "${1:-}" in
  "") wanted=("${build[@]}" "${tests[@]}") ;;
  --build) wanted=("${build[@]}") ;;
  *)
    echo "usage: scripts/setup.sh [--build]    --build: leave out what only the tests need" >&2
    exit 2
    ;;
esac

if ! command -v apt-get >/dev/null; then
  echo "setup: this is not Debian or Ubuntu; install the equivalents of: ${wanted[*]}" >&2
  exit 1
fi

missing=()
for package in "${wanted[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $status == installed ]] || missing+=("$package")
done
[[ ${#missing[@]} -eq 0 ]] && exit 0

as_root=()
if [[ $EUID -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "setup: run as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo DEBIAN_FRONTEND=noninteractive)
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
quietly() { "$@" >"$log" 2>&1 </dev/null || { tail -n 30 "$log" >&2; exit 1; }; }

echo "setup: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
quietly "${as_root[@]}" apt-get update
quietly "${as_root[@]}" apt-get install -y --no-install-recommends "${missing[@]}"
