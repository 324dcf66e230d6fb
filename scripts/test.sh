#!/usr/bin/env bash
# Builds volpipe (preset dev) and runs all its tests. Arguments go to ctest: scripts/test.sh -R geometry
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh
scripts/build.sh dev
# Tests that passed are not listed.
ctest --test-dir build/dev --output-on-failure --no-tests=error -j "$(nproc)" "$@" | sed -u -E "/ Passed |\*\*\*Skipped|^ +Start /d"
