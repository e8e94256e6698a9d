#!/usr/bin/env bash
# Runs the tests again at every SIMD level that this build and this processor have, forced with HALOTAP_ISA. Needs build/
# built with its tests: `make test-levels` sees to that.
set -euo pipefail
cd "$(dirname "$0")/.."

# A level that is not there is refused with the names of those that are.
refusal=$(HALOTAP_ISA=none build/bin/halotap inspect configs/cochlea/model.yaml 2>&1 || true)
levels=$(sed -n 's/.*expected one of \(.*\), got .*/\1/p' <<<"$refusal" | tr -d ,)
if [ -z "$levels" ]; then echo "cannot tell the SIMD levels from: $refusal" >&2; exit 1; fi

for level in $levels; do
  echo "SIMD level $level"
  HALOTAP_ISA=$level ctest --preset release --label-exclude structure "$@"
done
