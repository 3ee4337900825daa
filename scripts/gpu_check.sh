#!/usr/bin/env bash
# gpu_check.sh [FOLDER [SECONDS]]: on a machine with a GPU, builds the `cuda` preset for it, runs its tests (and those under
# compute-sanitizer), compares the trainer's losses with the CPU's and measures the kernels beside the copy limit and beside torch. Goes on after failures, and stops
# starting things after SECONDS (530). FOLDER (build/gpu_check) then has gpu_check.json, gpu_check.md and
# a log of every step. Fails when a step failed, or was not run.
set -uo pipefail
cd "$(dirname "$0")/.."
out=$(mkdir -p "${1:-build/gpu_check}" && cd "${1:-build/gpu_check}" && pwd)
limit=${2:-530}
rm -f "$out"/*.jsonl "$out"/*.log "$out"/gpu_check.*

# What scripts/bundle_deps.sh has packed, where it is.
if [[ -d deps/usr ]]; then
  deps=$PWD/deps/usr
  folder=$(basename "$(dirname "$(find "$deps/lib" -name 'libfmt.so' | head -n 1)")")
  export PATH=$PATH:$deps/bin CMAKE_PREFIX_PATH=$deps LD_LIBRARY_PATH=$deps/lib/$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export PKG_CONFIG_PATH=$deps/lib/$folder/pkgconfig:$deps/share/pkgconfig:$deps/lib/$folder/openblas-pthread/pkgconfig
  export LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$deps/lib/$folder/openblas-pthread
fi
# Where Python has them already, those are used.
if [[ -d deps/wheels ]] && ! python3 -c 'import pytest, scikit_build_core' 2>/dev/null; then
  if python3 -m pip install --quiet --no-index --find-links deps/wheels --upgrade --target "$out/wheels" pytest scikit-build-core; then
    export PYTHONPATH=$out/wheels${PYTHONPATH:+:$PYTHONPATH}
  fi
fi

# step NAME SECONDS COMMAND…: runs it for at most so long, and writes down how it went. A command that is not there, or has
# no time left, was not run.
step() {
  local name=$1 most=$2 status=0 began=$SECONDS
  shift 2
  local left=$((limit - SECONDS))
  if ! command -v "$1" >/dev/null; then
    record "$name" "not run" 0 "$([[ $1 == */* ]] && echo "$1 was not built" || echo "no $1 on this machine")"
  elif ((left < 5)); then
    record "$name" "not run" 0 "no time left"
  else
    echo "== $name: $*"
    timeout --kill-after=5 "$((most < left ? most : left))" "$@" >"$out/$name.log" 2>&1 || status=$?
    case $status in
      0) record "$name" passed $((SECONDS - began)) "" ;;
      124 | 137) record "$name" failed $((SECONDS - began)) "ran out of time" ;;
      *) record "$name" failed $((SECONDS - began)) "exit status $status, see $name.log" ;;
    esac
    ((status == 0)) || tail -n 30 "$out/$name.log"
  fi
  return "$status"
}

record() {
  printf '{"step": "%s", "result": "%s", "seconds": %d, "reason": "%s"}\n' "$1" "$2" "$3" "$4" >>"$out/steps.jsonl"
  echo "== $1: $2${4:+ ($4)}"
}

# One communication program for each operation.
perf_programs() { echo {all_reduce,all_gather,reduce_scatter,broadcast,reduce,alltoall,gather,scatter,sendrecv,hypercube}_perf; }

smi() { nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null | head -n 1; }

step gpu 20 nvidia-smi -L
architecture=$(smi compute_cap | tr -d .)
bin=build/cuda/bin
trainer=$(pkg-config --exists openblas && echo train_gpt)  # it needs OpenBLAS
step configure 60 cmake --preset cuda ${architecture:+-DCMAKE_CUDA_ARCHITECTURES=$architecture}
step build 270 cmake --build build/cuda --target cuda_tests cuda_kernels_perf cuda_host_cost_perf $(perf_programs) $trainer \
  -j "$(nproc)"
rm -rf build/cuda/test-results
step tests 150 ctest --test-dir build/cuda -L '^cuda$' --output-on-failure --no-tests=error
if [[ -n $trainer ]]; then
  step train_gpt 100 python3 perf/cuda/check_trainer.py $bin/train_gpt --limit 80
else
  record train_gpt "not run" 0 "no OpenBLAS on this machine"
fi
step kernels_perf 120 $bin/cuda_kernels_perf --json "$out/kernels.jsonl"
if [[ -n $(command -v python3) ]] && python3 -c 'import torch' 2>/dev/null; then
  step compare_torch 90 python3 perf/cuda/compare_torch.py --weft "$out/kernels.jsonl" --json "$out/torch.jsonl"
else
  record compare_torch "not run" 0 "python3 has no torch"
fi
# torch's back end: one rank, and two that share the GPU, beside the same tests on NCCL's own.
if python3 -c 'import torch, pytest, scikit_build_core' 2>/dev/null; then
  step torch_build 120 python3 -m pip install --quiet --no-index --no-deps --no-build-isolation --upgrade --target "$out/site" \
    -C cmake.define.WEFT_CUDA=ON ./python/weft
  for backend in weft nccl; do
    step "torch_$backend" 90 env PYTHONPATH="$out/site${PYTHONPATH:+:$PYTHONPATH}" WEFT_TEST_GPU=1 WEFT_TEST_GPU_BACKEND=$backend \
      python3 -m pytest -q -p no:cacheprovider python/weft/tests/test_gpu.py python/weft/tests/test_gpu_training.py
  done
else
  record torch_weft "not run" 0 "python3 has no torch, pytest or scikit-build-core (scripts/bundle_deps.sh packs the last two)"
fi
# Ranks that share a GPU show that results are right; their times say nothing.
step host_cost 40 $bin/cuda_host_cost_perf --gpu --json "$out/host_cost.jsonl"
# What NCCL's thread for each call of several ranks costs: with it, and as a blocking communicator would be.
# On a shared GPU neither is a promise: only a crash fails these.
for blocking in 0 1; do
  step "host_cost_2_blocking_$blocking" 30 env NCCL_COMM_BLOCKING=$blocking bash -c \
    "$bin/cuda_host_cost_perf --gpu --share-gpus -t 2 --rounds 5 --calls 100 --json $out/host_cost_2_$blocking.jsonl; ((\$? <= 1))"
done
for ranks in 2 4; do
  for program in $(perf_programs); do
    step "${program}_$ranks" 20 $bin/$program -t $ranks --device cuda --share-gpus -b 8 -e 1M -f 64 -n 5 -w 1 --rounds 1
  done
done
# Through pinned host memory, which one GPU shows as well as many.
step all_reduce_staged 30 env WEFT_DEVICE_BACKEND=staged $bin/all_reduce_perf -t 2 --device cuda --share-gpus -b 8 -e 64M -f 16
step all_reduce_compare 30 $bin/all_reduce_perf --device cuda --compare nccl --cost -b 8 -e 64M -f 16 --json "$out/collectives.jsonl"
# The same tests, without their runs on the host.
for tool in memcheck racecheck; do
  for test in cuda_optim_test cuda_model_test; do
    step "${tool}_$test" 90 compute-sanitizer --tool $tool --error-exitcode 9 $bin/$test --gtest_filter='*Gpu*'
  done
done

python3 scripts/gpu_report.py "$out" --results build/cuda/test-results --device "$(smi name)" --driver "$(smi driver_version)" \
  --seconds "$SECONDS"
