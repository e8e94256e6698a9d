#!/usr/bin/env bash
# Checks format (clang-format), names and common mistakes (clang-tidy, .clang-tidy) and the shell scripts (shellcheck).
# Needs build-dev configured: `make lint` sees to that.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}

git ls-files '*.cpp' '*.hpp' '*.h' '*.cu' '*.cuh' | xargs clang-format-14 --dry-run -Werror
echo "format: clean"

git ls-files '*.sh' .ci/run | xargs shellcheck
echo "scripts: clean"

# Headers are seen through the sources that include them (HeaderFilterRegex).
# Flags of another compiler (-Wno-restrict is GCC's) are no finding.
git ls-files '*.cpp' | xargs -P "$jobs" -n 1 clang-tidy-14 -p build-dev --quiet --warnings-as-errors='*' \
  --extra-arg=-Wno-unknown-warning-option 2>/dev/null
echo "names and common mistakes: clean"
