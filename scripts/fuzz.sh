#!/usr/bin/env bash
# fuzz.sh [SECONDS]: builds the fuzz targets with clang, AddressSanitizer and UndefinedBehaviorSanitizer, and runs each
# that long (60). New inputs go to build/fuzz/found; one that fails is named, and kept there too.
# The last line is "N passed, N failed".
set -euo pipefail
source "$(dirname "$0")/lib.sh"

seconds=${1:-60}
if ! command -v clang++-14 >/dev/null; then
  echo "fuzz: clang++-14 is not available on this release; nothing is run"
  finish
fi
bash scripts/setup.sh
build fuzz fuzz_targets || finish

export ASAN_OPTIONS="allocator_may_return_null=1:detect_leaks=0"
# fuzz TARGET SEEDS: what takes ten seconds or four gigabytes fails as well.
fuzz() {
  local target=$1 seeds=$2 found=build/fuzz/found/$1
  mkdir -p "$found"
  "build/fuzz/bin/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 -max_len=16384 \
    -print_final_stats=1 -verbosity=0 -artifact_prefix="$found/failed-" "$found" "$seeds"
}

# As many at a time as there are cores; each tells what it has to say when its turn has come.
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
declare -A running=()
tell() { # TARGET STATUS
  cat "$logs/$1"
  return "$2"
}
report() { # TARGET
  local status=0
  wait "${running[$1]}" || status=$?
  unset "running[$1]"
  check "$1 ($seconds s)" tell "$1" "$status"
}
order=()
for seeds in tests/fuzz/corpus/*; do
  target=$(basename "$seeds")_fuzz
  if [[ ${#order[@]} -ge $jobs ]]; then
    report "${order[0]}"
    order=("${order[@]:1}")
  fi
  fuzz "$target" "$seeds" >"$logs/$target" 2>&1 &
  running[$target]=$!
  order+=("$target")
done
for target in "${order[@]}"; do report "$target"; done
finish
