#!/usr/bin/env bash
# gpu_check.sh [FOLDER [SECONDS]]: on a machine with a GPU, builds the `cuda` preset for it, runs its tests (and those under
# compute-sanitizer), compares the trainer's losses with the CPU's and measures the kernels beside the copy limit and beside torch. Goes on after failures, and stops
# starting things after SECONDS (530). FOLDER (build/gpu_check) then has gpu_check.json, gpu_check.md and
# a log of every step. Fails when a step failed, or was not run. Without a GPU it builds, and says that the rest was not run.
#
# GPU_CHECK_PROGRAMS=FOLDER: programs of a `cuda` build made elsewhere (its bin/; built without MPI where this machine has
# none) are run as they are, and nothing is built but python/weft; GPU_CHECK_WHEEL=FILE: nor that.
# GPU_CHECK_STEPS=REGEX: only the steps that match.
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
  [[ $name =~ ${GPU_CHECK_STEPS:-.} ]] || return 0
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

# gpu_step: the same of what needs a GPU.
gpu_step() {
  if [[ -z $no_gpu ]]; then
    step "$@"
  elif [[ $1 =~ ${GPU_CHECK_STEPS:-.} ]]; then
    record "$1" "not run" 0 "$no_gpu"
  fi
}

record() {
  printf '{"step": "%s", "result": "%s", "seconds": %d, "reason": "%s"}\n' "$1" "$2" "$3" "$4" >>"$out/steps.jsonl"
  echo "== $1: $2${4:+ ($4)}"
}

# One communication program for each operation.
perf_programs() { echo {all_reduce,all_gather,reduce_scatter,broadcast,reduce,alltoall,gather,scatter,sendrecv,hypercube}_perf; }

smi() { nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null | head -n 1; }

no_gpu=
if ! command -v nvidia-smi >/dev/null; then
  no_gpu="no GPU: no nvidia-smi on this machine"
elif ! nvidia-smi -L >/dev/null 2>&1; then
  no_gpu="no GPU: nvidia-smi lists none"
fi
gpu_step gpu 20 nvidia-smi -L
architecture=$(smi compute_cap | tr -d .)
bin=${GPU_CHECK_PROGRAMS:-build/cuda/bin}
# CUDA's libraries where the loader does not know them: the toolkit's folder, then those that torch brings.
for folder in /usr/local/cuda/lib64 $(python3 -c 'import glob, nvidia; print(*(f for p in nvidia.__path__ for f in glob.glob(p + "/*/lib")))' 2>/dev/null); do
  LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
done
export LD_LIBRARY_PATH

# While the GPU is busy with tests, other cores build python/weft: torch_build waits for it.
wheel=${GPU_CHECK_WHEEL:-}
if [[ -z $wheel ]] && python3 -c 'import torch, pytest, scikit_build_core' 2>/dev/null; then
  nice python3 -m pip wheel --quiet --no-index --no-deps --no-build-isolation --wheel-dir "$out/wheel" -C cmake.define.WEFT_CUDA=ON \
    ${architecture:+-C cmake.define.CMAKE_CUDA_ARCHITECTURES=$architecture} ./python/weft >"$out/wheel.log" 2>&1 &
  wheel_build=$!
fi

trainer=$(pkg-config --exists openblas && echo train_gpt)  # it needs OpenBLAS
results=build/cuda/test-results
rm -rf $results
if [[ -z ${GPU_CHECK_PROGRAMS:-} ]]; then
  step configure 60 cmake --preset cuda ${architecture:+-DCMAKE_CUDA_ARCHITECTURES=$architecture}
  step build 270 cmake --build build/cuda --target cuda_tests cuda_kernels_perf cuda_host_cost_perf $(perf_programs) $trainer \
    -j "$(nproc)"
fi
for test in cuda_test cuda_optim_test cuda_model_test cuda_staged_test cuda_nccl_test; do
  gpu_step $test 120 $bin/$test --gtest_output=xml:$results/$test.xml
done
if [[ -n $trainer ]]; then
  gpu_step train_gpt 100 python3 perf/cuda/check_trainer.py $bin/train_gpt --limit 80
  # What a step of a larger model takes: as calls of the host, and as a graph.
  for way in "" --cuda-graph; do
    gpu_step "train_speed$way" 40 $bin/train_gpt --device cuda --precision bf16 --clip 1 --layers 12 --width 768 --heads 12 --seq 512 --batch 16 \
      --steps 40 --sample 0 $way --report-json "$out/train_speed$way.json"
  done
else
  record train_gpt "not run" 0 "no OpenBLAS on this machine"
fi
gpu_step kernels_perf 120 $bin/cuda_kernels_perf --json "$out/kernels.jsonl"
if [[ -n $(command -v python3) ]] && python3 -c 'import torch' 2>/dev/null; then
  gpu_step compare_torch 90 python3 perf/cuda/compare_torch.py --weft "$out/kernels.jsonl" --json "$out/torch.jsonl"
else
  record compare_torch "not run" 0 "python3 has no torch"
fi
# torch's back end: one rank, and two that share the GPU, beside the same tests on NCCL's own.
if python3 -c 'import torch, pytest, scikit_build_core' 2>/dev/null; then
  [[ -z ${wheel_build:-} ]] || step torch_build 200 bash -c "while kill -0 $wheel_build 2>/dev/null; do sleep 1; done; cat '$out/wheel.log'; ls '$out'/wheel/*.whl"
  step torch_install 30 python3 -m pip install --quiet --no-index --no-deps --upgrade --target "$out/site" "${wheel:-$(ls "$out"/wheel/*.whl)}"
  for backend in weft nccl; do
    gpu_step "torch_$backend" 90 env PYTHONPATH="$out/site${PYTHONPATH:+:$PYTHONPATH}" WEFT_TEST_GPU=1 WEFT_TEST_GPU_BACKEND=$backend \
      python3 -m pytest -q -rs -p no:cacheprovider python/weft/tests/test_gpu.py python/weft/tests/test_gpu_training.py
  done
  # Optimizers, loss scaling, wrappers, layers: on ranks that are processes, side by side where pytest-xdist is there, and in
  # pytest's own process.
  workers=$(python3 -c 'import xdist' 2>/dev/null && echo "-n 7")
  in_tests=(env PYTHONPATH="$out/site${PYTHONPATH:+:$PYTHONPATH}" WEFT_TEST_GPU=1 WEFT_TEST_GPU_BACKEND=weft)
  # shellcheck disable=SC2086
  gpu_step torch_training 150 "${in_tests[@]}" python3 -m pytest -q -rs -p no:cacheprovider $workers \
    python/weft/tests/test_gpu_{optim,zero,replicas,compose,wrapper_refusals,wrapper_streams,wrappers,layer_ops}.py
  gpu_step torch_layer_tests 60 "${in_tests[@]}" python3 -m pytest -q -rs -p no:cacheprovider python/weft/tests/test_gpu_layers.py
else
  record torch_weft "not run" 0 "python3 has no torch, pytest or scikit-build-core (scripts/bundle_deps.sh packs the last two)"
fi
if [[ -d $out/site ]]; then
  # A step's end, of 500 M parameters in 60 tensors and of 10 M in 10,000; layers forward and backward. Beside torch's own.
  with_weft=(env PYTHONPATH="$out/site${PYTHONPATH:+:$PYTHONPATH}")
  gpu_step torch_optim 60 "${with_weft[@]}" python3 perf/torch_optim_perf.py --device cuda --tensors 60 --shape 4096x2048 --json "$out/torch_optim.jsonl"
  gpu_step torch_optim_small 60 "${with_weft[@]}" python3 perf/torch_optim_perf.py --device cuda --tensors 10000 --shape 1000 --json "$out/torch_optim.jsonl"
  gpu_step torch_layers 60 "${with_weft[@]}" python3 perf/torch_layers_perf.py --device cuda --shapes 16384x4096 2048x1024 --types bf16 fp32 --json "$out/torch_layers.jsonl"
  gpu_step torch_calls 60 "${with_weft[@]}" python3 perf/cuda/torch_calls.py --json "$out/torch_calls.jsonl"
fi
# Ranks that share a GPU show that results are right; their times say nothing.
gpu_step host_cost 40 $bin/cuda_host_cost_perf --gpu --json "$out/host_cost.jsonl"
gpu_step host_cost_50 40 $bin/cuda_host_cost_perf --gpu --calls 50 --json "$out/host_cost.jsonl"  # about as many as a step has
# What NCCL's thread for each call of several ranks costs: with it, and as a blocking communicator would be.
# On a shared GPU neither is a promise: only a crash fails these.
for blocking in 0 1; do
  gpu_step "host_cost_2_blocking_$blocking" 30 env NCCL_COMM_BLOCKING=$blocking bash -c \
    "$bin/cuda_host_cost_perf --gpu --share-gpus -t 2 --rounds 5 --calls 100 --json $out/host_cost_2_$blocking.jsonl; ((\$? <= 1))"
done
for ranks in 2 4; do
  for program in $(perf_programs); do
    gpu_step "${program}_$ranks" 20 $bin/$program -t $ranks --device cuda --share-gpus -b 8 -e 1M -f 64 -n 5 -w 1 --rounds 1
  done
done
# Through pinned host memory, which one GPU shows as well as many.
gpu_step all_reduce_staged 30 env WEFT_DEVICE_BACKEND=staged $bin/all_reduce_perf -t 2 --device cuda --share-gpus -b 8 -e 64M -f 16
gpu_step all_reduce_compare 30 $bin/all_reduce_perf --device cuda --compare nccl --cost -b 8 -e 64M -f 16 --json "$out/collectives.jsonl"
# The same tests, without their runs on the host.
for tool in memcheck racecheck; do
  for test in cuda_optim_test cuda_model_test; do
    gpu_step "${tool}_$test" 90 compute-sanitizer --tool $tool --error-exitcode 9 $bin/$test --gtest_filter='*Gpu*'
  done
done

python3 scripts/gpu_report.py "$out" --results $results --device "$(smi name)" --driver "$(smi driver_version)" \
  --seconds "$SECONDS"
