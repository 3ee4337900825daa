#!/usr/bin/env bash
# `make perf-check`: measures most promises about speed and prints each bar beside its figure. Leaves 1 when one is missed.
# WEFT_PERF_FULL=1 measures the peers with two launches each instead of one. Figures go to build/perf-check/.
set -euo pipefail
source "$(dirname "$0")/../scripts/lib.sh"

out=build/perf-check
bin=build/release/bin
steps=${WEFT_DEMO_STEPS:-24}
missed=()
mkdir -p "$out"
rm -f "$out"/*.json "$out"/*.jsonl

say "build (release)"
configure_and_build release all_reduce_perf all_gather_perf reduce_scatter_perf broadcast_perf reduce_perf alltoall_perf \
  gather_perf scatter_perf barrier_perf group_perf adamw_perf optimizer_perf weft_optimizer_peer zero_step_perf checkpoint_perf executor_perf train_gpt weft-memory

# bar NAME COMMAND…: remembers the name when the command fails, and goes on.
bar() {
  local name=$1
  shift
  say "$name: $*"
  "$@" || missed+=("$name")
}

compare=(/usr/bin/python3 perf/compare_peers.py --bin "$bin" --json "$out/all_reduce.jsonl")
if [[ -z ${WEFT_PERF_FULL:-} ]]; then compare+=(--short); fi

trainer=("$bin/train_gpt" --ranks 2)
if command -v mpirun >/dev/null && grep -q '^WEFT_BUILT_WITH_MPI:INTERNAL=ON' build/release/CMakeCache.txt; then
  trainer=(mpirun -np 2 --bind-to core "$bin/train_gpt")
  bar "all_reduce beside Open MPI" "${compare[@]}"
  # The other operations: fewer sizes and rounds, or all of them with WEFT_PERF_FULL=1.
  others=(/usr/bin/python3 perf/compare_peers.py --bin "$bin" --json "$out/operations.jsonl" --settings)
  for op in reduce_scatter all_gather broadcast alltoall gather scatter reduce; do others+=("$op-symmetric"); done
  if [[ -z ${WEFT_PERF_FULL:-} ]]; then others+=(--short -e 8M -f 16 -n 10 --rounds 3); fi
  bar "the other operations beside Open MPI" "${others[@]}"
  configure_and_build release preload_loop weft_mpi
  bar "an MPI program with libweft_mpi.so preloaded" /usr/bin/python3 perf/compare_preload.py --json "$out/preload.jsonl"
else
  say "all_reduce beside Open MPI: not measured, there is no MPI here"
fi

bar "operations beside the machine's limit" /usr/bin/python3 perf/check_baselines.py --bin "$bin"
bar "a barrier beside an exchange of flags" "$bin/barrier_perf" --json "$out/barrier.jsonl"
bar "many small calls as one" "$bin/group_perf" --json "$out/groups.jsonl"
bar "AdamW kernel beside its memory traffic" "$bin/adamw_perf"
bar "an optimizer step beside its memory traffic" "$bin/optimizer_perf" --json "$out/optimizers.jsonl"
step=("$bin/zero_step_perf" --json "$out/zero_step.jsonl")  # 6 GB of memory
if [[ ${trainer[0]} == mpirun ]]; then step=(mpirun -np 2 --bind-to core "${step[@]}"); fi
bar "a ZeRO-1 step, fused" "${step[@]}"

train() { # REPORT ARGUMENT…
  local report=$1
  shift
  timeout -k 10 300 "${trainer[@]}" --steps "$steps" --compare --sample 0 --report-json "$report" "$@"
}
bar "training, emulated link" train "$out/link.report.json" --link auto
bar "training, plain shared memory" train "$out/plain.report.json"
bar "overlap" /usr/bin/python3 perf/check_overlap.py "$out/link.report.json" "$out/plain.report.json"
bar "what the strategies hide" /usr/bin/python3 perf/check_strategies.py --bin "$bin"
bar "planned steps" "$bin/executor_perf" --json "$out/executor.jsonl"
bar "buckets" /usr/bin/python3 perf/check_buckets.py --bin "$bin"
bar "where buffers lie" /usr/bin/python3 perf/check_memory.py --bin "$bin"

if [[ -x build/python/bin/python ]]; then
  bar "optimizers beside PyTorch's" build/python/bin/python perf/compare_optimizers.py --json "$out/optimizers_torch.jsonl"
  if build/python/bin/python -c 'import safetensors' 2>/dev/null; then
    bar "checkpoints beside torch.save and safetensors" build/python/bin/python perf/compare_checkpoint.py
  fi
  bar "PyTorch" build/python/bin/python perf/torch_perf.py --json "$out/torch.jsonl"
  bar "the order of compiled graphs" build/python/bin/python perf/torch_graph_run.py --json "$out/torch_graph.jsonl"
else
  say "PyTorch: not measured, there is no build/python (scripts/python.sh makes it, pip install ./python/weft the rest)"
fi

echo
for name in "${missed[@]}"; do echo "MISSED: $name"; done
if [[ ${#missed[@]} -gt 0 ]]; then exit 1; fi
echo "every bar holds; figures in $out/"
