#!/usr/bin/env bash
# Everything `make test` promises; the last line is "N passed, N failed".
set -euo pipefail
source "$(dirname "$0")/lib.sh"

bash scripts/setup.sh
check "format" bash scripts/format.sh --check

if build release; then run_tests release; fi
# Every option off: that all but the tests builds, starts ranks and moves data.
if build minimal weft examples/all perf/all tools/all weft_tests_{core,runtime,bucketing}; then
  run_tests minimal -LE slow -L '^(core|runtime|bucketing)$'
fi

source scripts/test_python.sh

nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
if [[ -n $nvcc ]]; then
  if build cuda weft cuda_tests; then
    # Streams, NCCL and errors, on a GPU in host memory.
    run_tests cuda -L '^fake_cuda$'
    # Without a GPU the other programs have been compiled and linked; that is all that can be checked here.
    if nvidia-smi -L >/dev/null 2>&1; then run_tests cuda -L '^cuda$'; fi
  fi
else
  echo "cuda: no nvcc found, not compiled"
fi
finish
