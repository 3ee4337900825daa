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
for seeds in tests/fuzz/corpus/*; do
  target=$(basename "$seeds")_fuzz
  found=build/fuzz/found/$target
  mkdir -p "$found"
  # What takes ten seconds or four gigabytes fails as well.
  check "$target ($seconds s)" "build/fuzz/bin/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 \
    -max_len=16384 -print_final_stats=1 -verbosity=0 -artifact_prefix="$found/failed-" "$found" "$seeds"
done
finish
