# Sourced by the other scripts: moves to the repository's root, sets the build's environment, keeps the test count.
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The same sources in another checkout hit the same cache entries.
export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1
# Open MPI refuses to start as root (containers) unless told twice, and to start more ranks than cores.
if [[ $(id -u) -eq 0 ]]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
export OMPI_MCA_rmaps_base_oversubscribe=1

jobs=${WEFT_JOBS:-$(nproc)}
passed=0
failed=0
failures=()

stages=()  # "second since the start, what began then"

# Says what begins now.
say() {
  stages+=("$SECONDS $*")
  printf '\n== %s\n' "$*"
}

# How long each took that was said, in seconds.
tell_times() {
  local i end
  for i in "${!stages[@]}"; do
    end=$SECONDS
    if [[ $((i + 1)) -lt ${#stages[@]} ]]; then end=${stages[i + 1]%% *}; fi
    echo "took $((end - ${stages[i]%% *}))s: ${stages[i]#* }"
  done
}

# check LABEL COMMAND…: one check, counted.
check() {
  local label=$1
  shift
  say "$label"
  if "$@"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    failures+=("$label")
  fi
}

configure_and_build() { # PRESET [TARGET…]
  local preset=$1
  shift
  cmake --preset "$preset" >"build/configure-$preset.log" 2>&1 || {
    cat "build/configure-$preset.log"
    return 1
  }
  cmake --build "build/$preset" --parallel "$jobs" ${1:+--target "$@"}
}

# build PRESET [TARGET…]: a build that works counts as one passed check.
build() {
  local before=$failed
  mkdir -p build
  check "build ($1)" configure_and_build "$@"
  [[ $failed -eq $before ]]
}

# add_results LABEL STATUS FOLDER: adds the tests whose results lie in FOLDER, left by a run that ended with STATUS.
add_results() {
  local label=$1 status=$2 folder=$3 results name
  results=$(/usr/bin/python3 scripts/count_tests.py "$folder") || results="0 1"
  local counts=${results%%$'\n'*} names=()
  local run_passed=${counts% *} run_failed=${counts#* }
  readarray -t -s 1 names <<<"$results"
  if [[ $status -ne 0 && $run_failed -eq 0 ]]; then run_failed=1; fi
  passed=$((passed + run_passed))
  failed=$((failed + run_failed))
  if [[ $run_failed -gt 0 && ${#names[@]} -eq 0 ]]; then failures+=("$label"); fi
  for name in "${names[@]}"; do failures+=("$label: $name"); done
  echo "$label: $run_passed passed, $run_failed failed"
}

# run_tests PRESET [CTEST ARGUMENT…]: adds the GoogleTest cases that passed and failed to the count.
run_tests() {
  local preset=$1 status=0
  shift
  say "tests ($preset)"
  rm -rf "build/$preset/test-results"
  mkdir -p "build/$preset/test-results"
  ${WEFT_TEST_LAUNCHER:-} ctest --test-dir "build/$preset" --parallel $((2 * jobs)) --output-on-failure --no-tests=error \
    --output-junit "$PWD/build/$preset/test-results/ctest.junit" "$@" || status=$?
  add_results "tests ($preset)" "$status" "build/$preset/test-results"
}

# make_python: build/python with torch in it, and python/weft built and installed there. Status 3: there is no torch to be had.
make_python() {
  bash scripts/python.sh || return
  # The compiler is that of `build`'s presets.
  CC=${CC:-cc} CXX=${CXX:-c++} CMAKE_BUILD_PARALLEL_LEVEL=$jobs build/python/bin/python -m pip install --quiet \
    --disable-pip-version-check --no-index --no-deps --no-build-isolation --force-reinstall \
    --config-settings=cmake.define.WEFT_WERROR=ON ./python/weft || return
  # What test_gpu*.py load, where the build found CUDA's headers.
  if grep -q weft_on_fake_gpu build/python-weft/build.ninja 2>/dev/null; then
    cmake --build build/python-weft --parallel "$jobs" --target weft_on_fake_gpu
  fi
}

# run_pytest LABEL ARGUMENT…: pytest in build/python; adds its tests to the count.
run_pytest() {
  local label=$1 status=0 results=build/test-results/${1// /-}
  shift
  say "$label"
  rm -rf "$results"
  mkdir -p "$results"
  build/python/bin/python -m pytest -q --disable-warnings -p no:cacheprovider --junitxml "$results/pytest.junit" "$@" || status=$?
  add_results "$label" "$status" "$results"
}

# run_distributed_test LABEL ARGUMENT…: torch's own DistributedTest; adds its tests to the count.
run_distributed_test() {
  local label=$1 status=0 results=build/test-results/${1// /-}
  shift
  say "$label"
  rm -rf "$results"
  mkdir -p "$results"
  build/python/bin/python tools/torch_compat/run_distributed_test.py --json "$results/torch.json" "$@" \
    >"$results/log" 2>&1 || status=$?
  if [[ $status -ne 0 ]]; then cat "$results/log"; fi
  add_results "$label" "$status" "$results"
}

# Prints what took how long, what failed and the closing line, and exits.
finish() {
  local failure
  tell_times
  for failure in "${failures[@]}"; do echo "FAILED: $failure"; done
  echo "$passed passed, $failed failed"
  [[ $failed -eq 0 ]]
  exit
}
