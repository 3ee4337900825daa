#!/usr/bin/env bash
# Installs what Weft needs on Debian 12 / Ubuntu 22.04 or newer, and only what is missing: a second run neither
# asks for rights nor touches the network.
set -euo pipefail

fail() {
  echo "setup: $*" >&2
  exit 1
}

packages=(
  g++ cmake ninja-build ccache pkg-config python3 python3-matplotlib python3-venv python3-dev
  libhwloc-dev libhwy-dev libspdlog-dev libfmt-dev libcli11-dev nlohmann-json3-dev
  libgtest-dev libgmock-dev libopenblas-dev libopenmpi-dev openmpi-bin openssh-client libucx-dev
  libboost-context-dev iproute2
)
# Formatting depends on the version of clang-format, so one version is used everywhere; releases that no longer have
# it skip the check (scripts/format.sh).
optional_packages=(clang-format-14 clang-tidy-14 clang-14)

is_installed() {
  dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null | grep -qx installed
}

missing_of() {
  local package
  for package in "$@"; do is_installed "$package" || echo "$package"; done
}

command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
  fail "this script knows Debian and Ubuntu only; install by hand: ${packages[*]}"

mapfile -t missing < <(missing_of "${packages[@]}")
mapfile -t missing_optional < <(missing_of "${optional_packages[@]}")
# Known to be unavailable on this release (found by an earlier run): nothing to do.
unavailable_marker=build/.setup-unavailable
if [[ -f $unavailable_marker && ${#missing[@]} -eq 0 ]] && [[ "$(cat "$unavailable_marker")" == "${missing_optional[*]}" ]]; then
  exit 0
fi
[[ ${#missing[@]} -eq 0 && ${#missing_optional[@]} -eq 0 ]] && exit 0

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  command -v sudo >/dev/null ||
    fail "these packages are missing and neither root nor sudo is there to install them: ${missing[*]} ${missing_optional[*]}"
  as_root=(sudo)
fi

apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120 "$@"
}

update_lists() {
  local try
  for try in 1 2 3; do
    # apt-get update ends with success even where a mirror did not answer, unless told otherwise.
    apt -qq update -o APT::Update::Error-Mode=any && return 0
    echo "setup: apt-get update failed (try $try of 3)" >&2
    sleep $((try * 2))
  done
  echo "setup: going on with the package lists that are there" >&2
}

echo "setup: installing ${missing[*]} ${missing_optional[*]}"
update_lists

available=() unavailable=()
for package in "${missing_optional[@]}"; do
  if apt-cache show "$package" >/dev/null 2>&1; then available+=("$package"); else unavailable+=("$package"); fi
done
if [[ ${#missing[@]} -gt 0 || ${#available[@]} -gt 0 ]]; then
  apt -qq install --no-install-recommends "${missing[@]}" "${available[@]}" >/dev/null ||
    fail "apt-get could not install the packages above; is the package mirror reachable? (apt-get update && apt-get install ${missing[*]} ${available[*]})"
fi
if [[ ${#unavailable[@]} -gt 0 ]]; then
  echo "setup: this release has no ${unavailable[*]}: the checks that need them are skipped"
  mkdir -p build
  echo "${unavailable[*]}" >"$unavailable_marker"
fi
