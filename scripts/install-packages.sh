#!/usr/bin/env bash
# Installs with apt what is missing of the packages that the named groups need; runs nothing when all are there.
#
#   scripts/install-packages.sh build [demo] [sanitizers] [lint] [peers] [sound]
#
# The names exist in Debian 12 and in Ubuntu 24.04. Needs root or sudo only when something is missing.
# HALOTAP_NO_INSTALL=1 skips it all.
set -euo pipefail

build=(build-essential cmake ninja-build pkg-config python3
  libhwy-dev libyaml-cpp-dev libeigen3-dev libboost-dev nlohmann-json3-dev libcli11-dev
  libsndfile1-dev libsoxr-dev libzip-dev libcairo2-dev portaudio19-dev fonts-dejavu-core libgtest-dev)
# Both bring recordings under /usr/share/sounds.
demo=(alsa-utils sound-theme-freedesktop)
# The tests' sound servers; without one they skip what needs it. Take the place of pipewire-alsa: not for a desktop.
sound=(pulseaudio pulseaudio-utils libasound2-plugins jackd2)
# The environment that other runtimes are installed in.
peers=(python3-venv)
# The version is fixed where its findings or its formatting would differ from one to the next.
lint=(clang-format-14 clang-tidy-14 shellcheck)
# RealtimeSanitizer came with clang 20; the newest that the distribution has is taken.
clang_versions=(22 21 20)

say() { echo "halotap: $*" >&2; }
installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
offered() { [[ $(LC_ALL=C apt-cache policy "$1" 2>/dev/null) == *"  Candidate: "[^\(]* ]]; }

# sudo forgets the proxy; apt needs it.
as_root() {
  local environment=(DEBIAN_FRONTEND=noninteractive) name
  for name in http_proxy https_proxy no_proxy; do
    if [ -n "${!name-}" ]; then environment+=("$name=${!name}"); fi
  done
  "${sudo[@]}" env "${environment[@]}" "$@"
}

# Runs a command that talks only when it fails.
quietly() {
  local log status=0
  log=$(mktemp)
  "$@" >"$log" 2>&1 </dev/null || status=$?
  if [ "$status" != 0 ]; then tail -n 20 "$log" >&2; fi
  rm -f "$log"
  return "$status"
}

refresh_lists() {
  say "refreshing apt's package lists"
  # One unreachable source of many may not matter; the installation decides.
  quietly as_root apt-get update -qq -o DPkg::Lock::Timeout=300 || say "not every list could be refreshed; going on"
}

install() {
  quietly as_root apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 "$@"
}

find_missing() {
  local package
  missing=()
  for package in "${wanted[@]}"; do
    if ! installed "$package"; then missing+=("$package"); fi
  done
}

# The sanitizers' clang: one that is installed, or else the newest on offer. Without any, the newest is asked for, and apt
# says that it has none.
clang_packages() {
  local version
  for version in "${clang_versions[@]}"; do
    if installed "clang-$version"; then echo "clang-$version libclang-rt-$version-dev"; return; fi
  done
  for version in "${clang_versions[@]}"; do
    if offered "clang-$version"; then echo "clang-$version libclang-rt-$version-dev"; return; fi
  done
  echo "clang-${clang_versions[0]} libclang-rt-${clang_versions[0]}-dev"
}

collect_wanted() {
  local group
  wanted=()
  for group in "$@"; do
    case $group in
      build) wanted+=("${build[@]}") ;;
      demo) wanted+=("${demo[@]}") ;;
      lint) wanted+=("${lint[@]}") ;;
      sound) wanted+=("${sound[@]}") ;;
      peers) wanted+=("${peers[@]}") ;;
      sanitizers) read -ra clang < <(clang_packages); wanted+=("${clang[@]}") ;;
      *) say "unknown group '$group': expected build, demo, lint, peers, sanitizers or sound"; exit 2 ;;
    esac
  done
}

[ $# -gt 0 ] || { sed -n '2,7p' "$0"; exit 2; }
if [ "${HALOTAP_NO_INSTALL-}" = 1 ]; then exit 0; fi
if ! command -v apt-get >/dev/null; then
  collect_wanted "$@"
  say "no apt-get here: nothing is installed; this needs what Debian calls ${wanted[*]}"
  exit 0
fi
collect_wanted "$@"
find_missing
if [ ${#missing[@]} = 0 ]; then exit 0; fi

sudo=()
if [ "$(id -u)" != 0 ]; then
  sudo=(sudo)
  # Without a terminal sudo cannot ask for a password.
  if ! command -v sudo >/dev/null || { ! sudo -n true 2>/dev/null && ! [ -t 0 ]; }; then
    say "these packages are missing, and there is neither root nor a working sudo to install them: ${missing[*]}"
    exit 1
  fi
  sudo -v
fi

# Lists that lack a package are old or were never fetched, as in a fresh container.
for package in "${missing[@]}"; do
  if ! offered "$package"; then
    refresh_lists
    collect_wanted "$@"
    find_missing
    break
  fi
done
say "installing with apt: ${missing[*]}"
if ! install "${missing[@]}"; then
  # What the lists name may have left the mirror since.
  refresh_lists
  install "${missing[@]}" || { say "apt cannot install: ${missing[*]}"; exit 1; }
fi
