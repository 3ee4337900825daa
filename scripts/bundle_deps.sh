#!/usr/bin/env bash
# bundle_deps.sh [FOLDER]: packs what a machine without package access needs to build and test Weft beyond CUDA, NCCL,
# cmake, g++, Python with pip and torch, into FOLDER (deps/, which git ignores; below 60 MB): from the packages installed
# here (scripts/setup.sh), and in wheels/ what building python/weft and its tests ask of Python. scripts/gpu_check.sh uses deps/ where it is. The machine must have this one's architecture and a C library no
# older than this one's.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-deps}
packages=(libhwloc-dev libhwy-dev libspdlog-dev libfmt-dev libcli11-dev nlohmann-json3-dev libgtest-dev libgmock-dev
  libopenblas-pthread-dev libopenblas0-pthread)
programs=(ninja pkg-config)
# As python/weft/pyproject.toml asks for, with what they ask for themselves; and what they ask for where Python is older
# than 3.11, which pip leaves out here: the oldest that torch has is 3.10.
wheels=('scikit-build-core>=0.10' 'pytest>=7' exceptiongroup tomli typing-extensions)
oldest_python=3.10

fail() {
  echo "bundle_deps: $*" >&2
  exit 1
}

# The shared libraries that a program or library needs and that no machine with g++ lacks are not packed.
needs_of() {
  ldd "$@" 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    grep -vE '/(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s)\.so' || true
}

# Symbolic links are kept, and what they point to comes along.
pack() {
  local file=$1 target
  [[ -f $file ]] || return 0
  cp -P --parents "$file" "$out"
  if [[ -L $file ]]; then
    target=$(dirname "$file")/$(readlink "$file")
    [[ $(readlink "$file") != /* ]] || target=$(readlink "$file")
    pack "$target"
  fi
}

command -v dpkg-query >/dev/null || fail "packs the packages of Debian and Ubuntu, and this is neither"
rm -rf "$out"
mkdir -p "$out"
for package in "${packages[@]}"; do
  files=$(dpkg-query -L "$package" 2>/dev/null) || fail "$package is not installed: run scripts/setup.sh"
  # OpenBLAS under its own name is enough.
  for file in $(grep -E '^/usr/(include|lib|share/(cmake|pkgconfig))/' <<<"$files" | grep -vE '/lib(blas|lapack)\.'); do
    [[ $file != *.a || $file == */lib[gG][tTmM]* ]] && pack "$file"
  done
done
for program in "${programs[@]}"; do
  path=$(command -v "$program") || fail "$program is not installed: run scripts/setup.sh"
  cp -L --parents "$path" "$out"
done
# Libraries lie where the loader is told to look (/lib is /usr/lib).
for file in $(needs_of "$out"/usr/bin/* $(find "$out" -name '*.so*' -type f)); do
  real=$(readlink -f "$file")
  folder=$out$(dirname "$real")
  mkdir -p "$folder"
  cp -n "$real" "$folder/$(basename "$file")" 2>/dev/null || true
done
# The names that programs ask for.
for folder in $(find "$out" -name '*.so*' -type f -exec dirname {} + | sort -u); do /sbin/ldconfig -n "$folder"; done
# Where pkg-config's files lie now, wherever the folder is put.
for file in $(find "$out" -name '*.pc' -type f); do
  up=$(sed 's#[^/]*#..#g' <<<"${file#"$out"/usr/}")
  grep -q '^prefix=' "$file" || sed -i '1i prefix=/usr' "$file"
  sed -i "s#^prefix=.*#prefix=\${pcfiledir}/${up%/..}#; s#=/usr/#=\${prefix}/#" "$file"
done
python3 -m pip download --quiet --dest "$out/wheels" --python-version "$oldest_python" --only-binary=:all: "${wheels[@]}" ||
  fail "pip cannot download ${wheels[*]}"
# They must do on any machine.
for wheel in "$out"/wheels/*; do [[ $wheel == *-none-any.whl ]] || fail "$(basename "$wheel") is for one kind of machine"; done
kilobytes=$(du -sk "$out" | cut -f1)
((kilobytes < 60000)) || fail "$out has $kilobytes KB, 60,000 is the most"
echo "bundle_deps: $out, $((kilobytes / 1000)) MB"
