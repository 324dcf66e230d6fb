#!/usr/bin/env bash
# Runs a pipeline as a Slurm array job, one task a shard, and merges the shards' reports in a job after it.
# slurm_array.sh --help says how; submitted, the same file is the script of both jobs.
set -euo pipefail

usage() {
  cat <<'END'
usage: slurm_array.sh [OPTION...] SPEC INPUT... -o OUT [-- OPTION-OF-VOLPIPE-RUN...]

Submits an array job that runs SPEC over the INPUTs in shards, and a job after it that merges the shards' reports into
OUT/volpipe-report.json and fails when an item failed or a shard has no report. Submit again to go on: what is finished
stays. OUT must be the same folder on all nodes. Prints the numbers of both jobs.

  -o, --output OUT      folder of the results; the logs go to OUT/logs
  -n, --shards N        tasks of the array (default 8)
      --shard LIST      submit these shards of the N alone, such as 3 or 2,5-7
      --at-once N       tasks that run at the same time (default: as many as fit)
      --gpu[=TYPE]      one GPU for each task, of any type or this one; without it the CPU is used
  -c, --cpus N          cores of a task (default 4)
      --mem SIZE        memory of a task (default 8G)
  -t, --time TIME       time limit of a task (default 1:00:00)
      --stop-early S    seconds before the limit at which a task stops and queues itself again (default 120)
      --requeues N      how often it may have been queued again when it does so (default 20)
  -b, --sbatch OPTION   an option of sbatch for both jobs (repeatable): --sbatch --partition=gpu
      --volpipe FILE    the program (default: $VOLPIPE, else volpipe on PATH)
      --dry-run         print the submissions alone
  -h, --help

A task that is preempted, requeued or near its time limit finishes the items in flight, writes its report and goes on
from there when it runs again; to use the whole grace time of a preemption, slurm.conf needs
SlurmctldParameters=preempt_send_user_signal. A task in which items failed ends with exit code 1 and is not queued
again.
END
}

die() {
  echo "slurm_array: $1" >&2
  exit 2
}

report_of() { echo "$1/volpipe-report$([[ $3 == 1 ]] || echo ".$2-of-$3").json"; }

# Slurm's warning, USR1, comes to this script alone. Its TERM comes to volpipe too, so it must not be passed on: the
# second signal ends volpipe at once.
run_task() {
  local shards=$1 out=$2 requeues=$3 program=$4
  shift 4
  local shard=$SLURM_ARRAY_TASK_ID restarts=${SLURM_RESTART_COUNT:-0} volpipe='' warned='' signalled status
  trap 'signalled=yes warned=yes; [[ ! $volpipe ]] || kill -TERM "$volpipe" 2>/dev/null || true' USR1
  trap 'signalled=yes' TERM
  echo "shard $shard of $shards, job ${SLURM_ARRAY_JOB_ID}_$shard, restarts: $restarts, on $(hostname)"

  rm -f "$(report_of "$out" "$shard" "$shards")"
  "$program" run "$@" -o "$out" --shard "$shard/$shards" --resume &
  volpipe=$!
  while
    signalled=
    wait "$volpipe" && status=0 || status=$?
    [[ $signalled ]]
  do :; done

  if [[ $warned && $status == 143 ]]; then
    if ((restarts < requeues)); then
      echo "shard $shard was warned, stopped, and is queued again"
      scontrol requeue "$SLURM_JOB_ID"
    else
      echo "shard $shard was not done after $restarts restarts: give it more --time, or submit more --shards" >&2
    fi
  fi
  exit "$status"
}

run_merge() {
  local shards=$1 out=$2 program=$3 reports=() status=0 shard report
  for ((shard = 1; shard <= shards; ++shard)); do
    report=$(report_of "$out" "$shard" "$shards")
    [[ ! -s $report ]] || reports+=("$report")
  done
  if ((${#reports[@]} > 0)); then
    "$program" report merge "${reports[@]}" -o "$out/volpipe-report.json" || status=$?
  else
    echo "none of the $shards shards left a report" >&2
    status=1
  fi
  ((status == 0)) || echo "the logs of the shards are in $out/logs" >&2
  exit "$status"
}

case "${1:-}" in
  --run-task) run_task "${@:2}" ;;
  --run-merge) run_merge "${@:2}" ;;
esac

out='' shards=8 list='' at_once='' gpu='' cpus=4 mem=8G time=1:00:00 early=120 requeues=20
program=${VOLPIPE:-volpipe} dry='' site=() inputs=() extra=()

while (($# > 0)); do
  case "$1" in
    -h | --help) usage && exit 0 ;;
    --) extra=("${@:2}") && break ;;
    --dry-run) dry=yes && shift && continue ;;
    --gpu) gpu=gpu:1 && shift && continue ;;
    --gpu=?*) gpu=gpu:${1#--gpu=}:1 && shift && continue ;;
    -*) (($# > 1)) || die "$1 needs a value, or is no option of this script: slurm_array.sh --help lists them" ;;
    *) inputs+=("$1") && shift && continue ;;
  esac
  case "$1" in
    -o | --output) out=$2 ;;
    -n | --shards) shards=$2 ;;
    --shard) list=$2 ;;
    --at-once) at_once=$2 ;;
    -c | --cpus) cpus=$2 ;;
    --mem) mem=$2 ;;
    -t | --time) time=$2 ;;
    --stop-early) early=$2 ;;
    --requeues) requeues=$2 ;;
    -b | --sbatch) site+=("$2") ;;
    --volpipe) program=$2 ;;
    *) die "there is no option $1; options of volpipe run come after --" ;;
  esac
  shift 2
done

((${#inputs[@]} > 1)) || die "name a SPEC and at least one INPUT; slurm_array.sh --help shows how"
[[ $out ]] || die "name the folder of the results with -o"
for number in "$shards" "$cpus" "${at_once:-1}"; do
  [[ $number =~ ^[1-9][0-9]*$ ]] || die "'$number' must be a whole number above 0"
done
for number in "$early" "$requeues"; do
  [[ $number =~ ^[0-9]+$ ]] || die "'$number' must be a whole number"
done
found=$(command -v "$program") || die "there is no program '$program': name it with --volpipe"
program=$(realpath "$found")
command -v sbatch >/dev/null || [[ $dry ]] || die "there is no sbatch here: run this where jobs are submitted"

submit() {
  if [[ $dry ]]; then
    printf '%q ' sbatch "$@" >&2 && echo >&2
    echo N
  else
    local answer
    answer=$(sbatch "$@") && echo "${answer%%;*}"
  fi
}

[[ $dry ]] || mkdir -p "$out/logs"
common=(--parsable --requeue --open-mode=append)
array=(
  --job-name=volpipe "--array=${list:-1-$shards}${at_once:+%$at_once}" "--output=$out/logs/shard-%a.log"
  --nodes=1 --ntasks=1 "--cpus-per-task=$cpus" "--mem=$mem" "--time=$time" "--signal=B:USR1@$early"
  ${gpu:+"--gres=$gpu"}
)
device=cpu
[[ ! $gpu ]] || device=cuda:0

tasks=$(submit "${common[@]}" "${array[@]}" "${site[@]}" "$0" --run-task "$shards" "$out" "$requeues" "$program" \
  "${inputs[@]}" --device "$device" "${extra[@]}")
merge=$(submit "${common[@]}" --job-name=volpipe-merge "--dependency=afterany:$tasks" "--output=$out/logs/merge.log" \
  --ntasks=1 --time=10 "${site[@]}" "$0" --run-merge "$shards" "$out" "$program")
echo "array $tasks"
echo "merge $merge"
