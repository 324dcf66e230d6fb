#!/usr/bin/env bash
# Builds the fuzzers (preset fuzz) and runs each on its corpus in tests/fuzz/corpus and what earlier runs found, two at a
# time. Says of each what it did; fails, with the path of the input, where one crashes, hangs or takes too much memory.
#   scripts/fuzz.sh [SECONDS]   of each fuzzer; 60 by default
#   scripts/fuzz.sh --can       exit code 0 where this machine can build fuzzers; builds nothing
set -euo pipefail
cd "$(dirname "$0")/.."

can_fuzz() {
  local program
  program=$(mktemp)
  echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
    clang++ -fsanitize=fuzzer,address,undefined -x c++ - -o "$program" 2>/dev/null
  local result=$?
  rm -f "$program"
  return $result
}

if ! can_fuzz; then
  echo "no fuzzing: clang++ or its fuzzer runtime is missing (Debian: clang, libclang-rt-dev)"
  [[ ${1:-} != --can ]] && exit 0 || exit 1
fi
[[ ${1:-} != --can ]] || exit 0
seconds=${1:-60}
[[ $seconds =~ ^[1-9][0-9]*$ ]] || { echo "usage: scripts/fuzz.sh [SECONDS]" >&2; exit 2; }

TARGET=volpipe_fuzzers scripts/build.sh fuzz
finds=$PWD/build/fuzz/finds
export LSAN_OPTIONS=suppressions=$PWD/tests/lsan.supp:print_suppressions=0
export UBSAN_OPTIONS=print_stacktrace=1

longest_input() {
  case $1 in
    dicom) echo 8192 ;;
    expression) echo 400 ;;
    *) echo 4096 ;;
  esac
}

fuzz() {
  local name=$1 log=$finds/$1.log failed=0 started=$SECONDS
  mkdir -p "$finds/$name" "$finds/$name-crashes"
  build/fuzz/bin/volpipe_"$name"_fuzz -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -max_len="$(longest_input "$name")" -artifact_prefix="$finds/$name-crashes/" \
    "$finds/$name" "tests/fuzz/corpus/$name" >"$log" 2>&1 || failed=1
  local runs coverage
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  coverage=$(sed -nE 's/^#.* cov: ([0-9]+) .*/\1/p' "$log" | tail -n 1)
  echo "$name: ${runs:-0} runs, coverage ${coverage:-0}, $((SECONDS - started)) s"
  ((failed)) || return 0
  echo "$name failed: $(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1), see $log" >&2
  return 1
}

failed=0
for source in tests/fuzz/*_fuzz.cpp; do
  (($(jobs -rp | wc -l) < 2)) || wait -n || failed=1
  fuzz "$(basename "$source" _fuzz.cpp)" &
done
while [[ -n $(jobs -p) ]]; do wait -n || failed=1; done
exit $failed
