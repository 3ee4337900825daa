#!/usr/bin/env bash
# clang-tidy over the library's sources. A file that passed is not looked at again until it, any header or .clang-tidy
# changes; the stamps are kept outside the checkout, so that fresh clones profit too.
set -euo pipefail
source "$(dirname "$0")/lib.sh"

bash scripts/setup.sh
if ! linter=$(command -v clang-tidy-14); then
  echo "lint: clang-tidy-14 is not available on this release; nothing is checked"
  exit 0
fi
mkdir -p build
cmake --preset release >build/configure-release.log 2>&1 || {
  cat build/configure-release.log
  exit 1
}

stamps=${XDG_CACHE_HOME:-$HOME/.cache}/weft-lint
mkdir -p "$stamps"
find "$stamps" -type f -mtime +30 -delete
headers=$(git ls-files -z --cached --others --exclude-standard -- include src kernels .clang-tidy cmake |
  grep -zE '\.(hpp|in|cmake)$|clang-tidy$' | xargs -0 sha256sum | sha256sum | cut -d' ' -f1)

lint_one() {
  local file=$1 key
  key=$({ echo "$headers"; sha256sum "$file"; } | sha256sum | cut -d' ' -f1)
  [[ -e $stamps/$key ]] && return 0
  if "$linter" --quiet -p build/release --extra-arg=-Wno-unknown-warning-option "$file" 2>"build/lint-$key.log"; then
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
export linter headers stamps
# Only what the release preset compiles: sources behind an option that is off have no compile command.
git ls-files --cached --others --exclude-standard -- 'src/*.cpp' 'kernels/cpu/*.cpp' | sort -u |
  while read -r file; do if grep -qF "\"$PWD/$file\"" build/release/compile_commands.json; then echo "$file"; fi; done |
  xargs -P "$jobs" -I{} bash -c 'lint_one {}'
