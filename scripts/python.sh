#!/usr/bin/env bash
# python.sh: makes build/python, a virtual environment with torch and what building and testing python/weft needs.
# Its packages (3.7 GB, 45 s to install; 5 GB and twice the time with all that torch asks for, which only a machine with a
# GPU uses) are kept outside the checkout, under WEFT_TEST_PYTHON_CACHE or ~/.cache/weft-python, one folder per list of
# requirements; build/python only refers to them, so that what is installed there stays this checkout's.
# Exit code 3: the packages are not there and cannot be downloaded; the last line says why.
set -euo pipefail
source "$(dirname "$0")/lib.sh"

python=${WEFT_TEST_PYTHON:-/usr/bin/python3}
store=${WEFT_TEST_PYTHON_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/weft-python}
closure=--no-deps
if nvidia-smi -L >/dev/null 2>&1; then closure=; fi

key=$({ cat python/requirements/*.txt; "$python" -VV; echo "$closure"; uname -m; } | sha256sum | cut -c1-16)
packages=$store/$key
log=build/python-packages.log
mkdir -p build "$store"

unavailable() {
  echo "python: $*"
  exit 3
}

install_packages() {
  "$python" -m venv --clear "$packages" || unavailable "$python -m venv fails: is python3-venv installed?"
  local pip=("$packages/bin/python" -m pip install --no-cache-dir --disable-pip-version-check --retries 2)
  say "python packages into $packages (once; several minutes on a slow network)"
  { "${pip[@]}" $closure -r python/requirements/torch.txt && "${pip[@]}" -r python/requirements/development.txt; } \
    >"$log" 2>&1 || {
    local reason
    reason=$(grep -m 1 -E '^ERROR|No space left' "$log" || tail -n 1 "$log")
    rm -rf "$packages"
    unavailable "pip cannot install python/requirements ($reason; all of it: $log)"
  }
  "$packages/bin/python" -c 'import torch.distributed' 2>"$log" || unavailable "torch does not import: $(tail -n 1 "$log")"
  touch "$packages/complete"
}

# Trainers that some examples are written for; where they cannot be installed those say so and their tests are skipped.
trainers=$store/trainers-$({ cat python/requirements/trainers/*.txt; echo "$key"; } | sha256sum | cut -c1-16)
install_trainers() {
  local pip=(timeout 300 "$packages/bin/python" -m pip install --no-cache-dir --disable-pip-version-check --no-warn-conflicts --target "$trainers")
  rm -rf "$trainers"
  say "trainers into $trainers (once; half a minute)"
  if "${pip[@]}" -r python/requirements/trainers/models.txt >"$log" 2>&1 &&
    "${pip[@]}" --no-deps -r python/requirements/trainers/trainers.txt >>"$log" 2>&1; then
    touch "$trainers/complete"
  else
    echo "python: no trainers ($(grep -m 1 '^ERROR' "$log" || tail -n 1 "$log" | grep . || echo "no answer within 5 minutes")); their examples are not tested"
    rm -rf "$trainers"
  fi
}

(
  flock 9  # two checkouts may be set up at once
  if [[ ! -e $packages/complete ]]; then install_packages; fi
  touch "$packages/complete"
  if [[ ! -e $trainers/complete ]]; then install_trainers; else touch "$trainers/complete"; fi
  # What no checkout has used for a month goes.
  find "$store" -mindepth 2 -maxdepth 2 -name complete -mtime +30 -printf '%h\n' | xargs -r rm -rf
) 9>"$store/lock"

if [[ "$(cat build/python/packages 2>/dev/null)" != "$packages" ]]; then
  "$python" -m venv --clear build/python
  site=$(build/python/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  shared=$("$packages/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  echo "import site; site.addsitedir('$shared')" >"$site/weft_packages.pth"
  echo "$packages" >build/python/packages
fi
# After the packages: what both have is theirs.
site=$(build/python/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
if [[ -e $trainers/complete ]]; then echo "$trainers" >"$site/weft_trainers.pth"; else rm -f "$site/weft_trainers.pth"; fi
