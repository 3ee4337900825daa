#!/usr/bin/env bash
# format.sh: formats every tracked or new C++/CUDA file. format.sh --check: fails where that would change one.
set -euo pipefail
source "$(dirname "$0")/lib.sh"

if ! formatter=$(command -v clang-format-14); then
  echo "format: clang-format-14 is not available on this release; nothing is checked"
  exit 0
fi
mapfile -t files < <(git ls-files --cached --others --exclude-standard -- '*.hpp' '*.cpp' '*.h' '*.c' '*.cu' '*.cuh' | sort -u)
existing=()
for file in "${files[@]}"; do if [[ -f $file ]]; then existing+=("$file"); fi; done

if [[ ${1:-} == --check ]]; then
  "$formatter" --dry-run --Werror "${existing[@]}" || {
    echo "format: run 'make format'"
    exit 1
  }
else
  "$formatter" -i "${existing[@]}"
fi
