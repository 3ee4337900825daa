#!/usr/bin/env bash
# sanitize.sh PRESET…: builds and runs the tests under asan, ubsan or tsan, and those on a fake GPU under cuda-asan or
# cuda-tsan; the last line is "N passed, N failed".
set -euo pipefail
source "$(dirname "$0")/lib.sh"

bash scripts/setup.sh

export ASAN_OPTIONS="detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1:allocator_may_return_null=1"
export LSAN_OPTIONS="suppressions=$PWD/scripts/lsan.supp:print_suppressions=0"
export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1"
export TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1:suppressions=$PWD/scripts/tsan.supp"

for preset in "$@"; do
  targets=(weft_tests)
  chosen=(-LE 'slow|package')
  if [[ $preset == tsan ]]; then
    # Where there are threads: the folders of these names, and what the scheduler starts. Saving and loading is checkpoint's.
    threaded=(bucketing checkpoint collectives core examples runtime sharding)
    targets=("${threaded[@]/#/weft_tests_}" memory_plan_test plan_executor_test)
    chosen=(-LE slow -E train_gpt_resume_test -L "^($(IFS='|' && echo "${threaded[*]}")|threads)\$")
  elif [[ $preset == cuda-* ]]; then
    targets=(cuda_tests)
    chosen=(-L '^fake_cuda$')
  fi
  build "$preset" "${targets[@]}" || continue
  launcher=
  # ThreadSanitizer's shadow mapping does not survive every kernel's address-space randomisation.
  if [[ $preset == *tsan ]] && setarch "$(uname -m)" -R true 2>/dev/null; then launcher="setarch $(uname -m) -R"; fi
  WEFT_TEST_LAUNCHER=$launcher run_tests "$preset" "${chosen[@]}"
done
finish
