#!/bin/sh
# gpu_check.sh: on a machine with a GPU, builds the `cuda` preset and runs its GPU tests; fails when one fails or none ran.
set -eu
cd "$(dirname "$0")/.."
nvidia-smi -L
cmake --preset cuda
cmake --build build/cuda --target cuda_tests
build/cuda/bin/cuda_test | tee build/cuda/gpu_check.log
if grep -q '^\[  SKIPPED \]' build/cuda/gpu_check.log; then
  echo "gpu_check: tests were skipped: this process sees no GPU (CUDA_VISIBLE_DEVICES? driver?)" >&2
  exit 1
fi
echo "gpu_check: $(grep -c '^\[       OK \]' build/cuda/gpu_check.log) tests ran on $(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)"
