#!/usr/bin/env bash
# check_package.sh BUILD CMAKE CXX: installs BUILD, then builds and runs consumer/ by find_package and by pkg-config.
set -euo pipefail
build=$1 cmake=$2 cxx=$3
consumer=$(cd "$(dirname "$0")/consumer" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# It is one process of its own ranks even where this test itself runs under a launcher.
check_output() {
  local output
  output=$("$@")
  [[ $output == "sum 3" ]] || {
    echo "$1 printed '$output' instead of 'sum 3'" >&2
    exit 1
  }
}

echo "-- install"
"$cmake" --install "$build" --prefix "$scratch/prefix" >"$scratch/install.log" || {
  cat "$scratch/install.log"
  exit 1
}
# Installed packages are moved around (staged, unpacked elsewhere): nothing may remember where it was installed.
mv "$scratch/prefix" "$scratch/moved"

echo "-- find_package"
"$cmake" -S "$consumer" -B "$scratch/by-cmake" -G Ninja -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_PREFIX_PATH="$scratch/moved"
"$cmake" --build "$scratch/by-cmake"
check_output "$scratch/by-cmake/consumer"

echo "-- pkg-config"
pc=$(dirname "$(find "$scratch/moved" -name weft.pc)")
export PKG_CONFIG_PATH="$pc" LD_LIBRARY_PATH="$(dirname "$pc")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
for static in "" --static; do
  # shellcheck disable=SC2046  # the flags are words
  "$cxx" -std=c++20 "$consumer/main.cpp" -o "$scratch/by-pkg-config" $(pkg-config $static --cflags --libs weft)
  check_output "$scratch/by-pkg-config"
done
