#!/usr/bin/env bash
# check_package.sh BUILD CMAKE CXX PROGRAMS: installs BUILD, then builds and runs consumer/ by find_package and by
# pkg-config, and the installed programs where PROGRAMS is ON.
# The consumer's programs are those of README.md, docs/own-trainer.md and docs/slow-steps.md, to the letter.
set -euo pipefail
build=$1 cmake=$2 cxx=$3 programs=$4
here=$(cd "$(dirname "$0")" && pwd)
consumer=$here/consumer
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

expect() { # PATTERN COMMAND…
  local pattern=$1 output
  shift
  output=$("$@")
  [[ $output =~ ^$pattern$ ]] || {
    echo "$1 printed '$output', which is not '$pattern'" >&2
    exit 1
  }
}

# program_of PAGE N: its N-th C++ block.
program_of() {
  awk -v wanted="$2" '/^```cpp$/ {n++; inside = n == wanted; next} /^```$/ {inside = 0} inside' "$here/../../$1"
}

echo "-- pages"
diff <(program_of README.md 1) "$consumer/main.cpp"
diff <(program_of README.md 2) "$consumer/data_parallel.cpp"
diff <(program_of docs/own-trainer.md 1) "$consumer/zero_optimizer.cpp"
diff <(program_of docs/own-trainer.md 2) "$consumer/fully_sharded.cpp"
diff <(program_of docs/own-trainer.md 3) "$consumer/resumable.cpp"
diff <(program_of docs/slow-steps.md 1) "$consumer/slow_steps.cpp"

echo "-- install"
"$cmake" --install "$build" --prefix "$scratch/prefix" >"$scratch/install.log" || {
  cat "$scratch/install.log"
  exit 1
}
# Installed packages are moved around (staged, unpacked elsewhere): nothing may remember where it was installed.
mv "$scratch/prefix" "$scratch/moved"

if [[ $programs == ON ]]; then
  echo "-- programs"
  for name in {all_reduce,all_gather,reduce_scatter,broadcast,reduce,alltoall,gather,scatter,sendrecv,hypercube,group,adamw}; do
    expect "${name}_perf.* [0-9]+\.[0-9]+\.[0-9]+" "$scratch/moved/bin/${name}_perf" --version
  done
  "$scratch/moved/bin/weft-doctor" --help >"$scratch/help"
  table=$("$scratch/moved/bin/all_reduce_perf" -t 2 -b 8 -e 8 -n 1 --rounds 1)
  [[ $table == *"Out of bounds values : 0 OK"* ]]
fi

echo "-- find_package"
"$cmake" -S "$consumer" -B "$scratch/by-cmake" -G Ninja -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_PREFIX_PATH="$scratch/moved"
"$cmake" --build "$scratch/by-cmake"
expect "sum 3" "$scratch/by-cmake/main"
for program in data_parallel zero_optimizer fully_sharded; do
  expect "learned 0\.(5|50[0-9]*|49[0-9]*)" "$scratch/by-cmake/$program"
done
expect "step 2.*hideable +[0-9.]+ ms.*" "$scratch/by-cmake/slow_steps"

# A run that ends and is continued prints what one does that never ended: batch, loss scale and weight.
resumable=$scratch/by-cmake/resumable
whole=$("$resumable" "$scratch/whole" 200)
"$resumable" "$scratch/parts" 120 >"$scratch/half"
expect "$whole" "$resumable" "$scratch/parts" 200
expect "batch [0-9]+, scale [0-9]+, learned 0\.(5|50[0-9]*|49[0-9]*)" "$resumable" "$scratch/parts" 200  # nothing left

# And one goes on at other numbers of ranks.
"$resumable" "$scratch/more" 100 2 >"$scratch/half"
for steps in "150 3" "200 1"; do
  # shellcheck disable=SC2086  # two arguments
  expect "batch [0-9]+, scale [0-9]+, learned 0\.(5|50[0-9]*|49[0-9]*)" "$resumable" "$scratch/more" $steps
done

echo "-- pkg-config"
pc=$(dirname "$(find "$scratch/moved" -name weft.pc)")
export PKG_CONFIG_PATH="$pc" LD_LIBRARY_PATH="$(dirname "$pc")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
# shellcheck disable=SC2046  # the flags are words
"$cxx" -std=c++20 "$consumer/main.cpp" -o "$scratch/by-pkg-config" $(pkg-config --cflags --libs weft)
expect "sum 3" "$scratch/by-pkg-config"
