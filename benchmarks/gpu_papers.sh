#!/usr/bin/env bash
# The papers' experiments on a GPU, in the order of value: each step short, and skipped once it is done.
#
#   benchmarks/gpu_papers.sh --dry-run [--full]    steps, sizes, memory on the card, minutes; needs no card
#   benchmarks/gpu_papers.sh --pack                the images as small archives under $OUTPUT/data, fetched where need be
#   benchmarks/gpu_papers.sh [--full] [STEP]...    every step, or those named
#
# OUTPUT (runs/gpu_papers) is where plans, runs and results go; one folder a step. A step that is stopped goes on from
# its last checkpoint when the script is run again. MINUTES (30) is what all of it may take, SECONDS_A_STEP (570) what
# a step may take in one call; --full lifts both. DEVICE (cuda) and PYTHON (python3) may be set. FEDASSAY_GPU is bf16
# unless it is set: run `python benchmarks/gpu.py --only verdicts` first, which says whether verdicts stay in bfloat16.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python3}
output=${OUTPUT:-runs/gpu_papers}
device=${DEVICE:-cuda}
minutes=${MINUTES:-30}
limit=${SECONDS_A_STEP:-570}
export FEDASSAY_GPU=${FEDASSAY_GPU-bf16}

full=() dry= packing= asked=()
for word in "$@"; do
  case $word in
    --dry-run) dry=yes ;;
    --full) full=(--full) ;;
    --pack) packing=yes ;;
    -*) echo "gpu_papers.sh: $word given; allowed: --dry-run, --full, --pack, names of steps" >&2; exit 2 ;;
    *) asked+=("$word") ;;
  esac
done

helper() { "$python" "$here/gpu_papers.py" "$@"; }

if [ -n "$dry" ]; then
  helper dry-run "${full[@]}"
  exit
fi
if [ -n "$packing" ]; then
  helper pack "$output/data"
  exit
fi

mapfile -t known < <(helper steps)
if [ ${#asked[@]} -eq 0 ]; then
  asked=("${known[@]}")
fi
for step in "${asked[@]}"; do
  case " ${known[*]} " in
    *" $step "*) ;;
    *) echo "gpu_papers.sh: step $step given; allowed: ${known[*]}" >&2; exit 2 ;;
  esac
done

run_step() {
  local folder=$output/$1 resume=()
  mkdir -p "$output"
  helper plan "$1" "$output/data" "${full[@]}" >"$output/$1.yaml"
  if [ -d "$folder" ]; then
    resume=(--resume)
  fi
  local watch=(timeout --signal=INT --kill-after=30 "$limit")
  if [ ${#full[@]} -gt 0 ]; then
    watch=()
  fi
  "${watch[@]}" "$python" -m fedassay run "$output/$1.yaml" -o "$folder" --device "$device" "${resume[@]}"
}

failed=0
for step in "${asked[@]}"; do
  if [ -f "$output/$step/done" ]; then
    echo "$step: done before"
    continue
  fi
  if [ ${#full[@]} -eq 0 ] && [ "$SECONDS" -ge $((minutes * 60)) ]; then
    echo "$step: not begun, $minutes minutes are over; run the script again"
    failed=1
    continue
  fi
  begun=$SECONDS
  code=0
  run_step "$step" || code=$?
  case $code in
    0) touch "$output/$step/done"; echo "$step: $((SECONDS - begun)) s" ;;
    124 | 130 | 137) echo "$step: stopped after $((SECONDS - begun)) s; run the script again to go on"; failed=1 ;;
    *) echo "$step: failed with exit code $code"; failed=1 ;;
  esac
done
helper results "$output"
exit "$failed"
