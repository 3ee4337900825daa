#!/usr/bin/env bash
# clang-tidy over the library's sources. A file that passed is not looked at again until it, a header that it includes or
# .clang-tidy changes; the stamps are kept outside the checkout, so that fresh clones profit too.
set -euo pipefail
source "$(dirname "$0")/lib.sh"

bash scripts/setup.sh
if ! linter=$(command -v clang-tidy-14); then
  echo "lint: clang-tidy-14 is not available on this release; nothing is checked"
  exit 0
fi
mkdir -p build
cmake --preset lint >build/configure-lint.log 2>&1 || {
  cat build/configure-lint.log
  exit 1
}

stamps=${XDG_CACHE_HOME:-$HOME/.cache}/weft-lint
mkdir -p "$stamps"
find "$stamps" -type f -mtime +30 -delete
lint_one() {
  local key=$1 file=$2
  [[ -e $stamps/$key ]] && return 0
  if "$linter" --quiet -p build/lint --extra-arg=-Wno-unknown-warning-option "$file" 2>"build/lint-$key.log"; then
    rm -f "build/lint-$key.log"
    touch "$stamps/$key"
  else
    grep -vE '^[0-9]+ warnings? ' "build/lint-$key.log" || true
    rm -f "build/lint-$key.log"
    echo "lint: $file"
    return 1
  fi
}
export -f lint_one
export linter stamps
# Only what the preset compiles: sources behind an option that is off have no compile command.
git ls-files --cached --others --exclude-standard -- 'src/*.cpp' 'kernels/cpu/*.cpp' | sort -u |
  while read -r file; do if grep -qF "\"$PWD/$file\"" build/lint/compile_commands.json; then echo "$file"; fi; done |
  python3 scripts/lint_keys.py | xargs -P "$jobs" -L 1 bash -c 'lint_one "$0" "$1"'
