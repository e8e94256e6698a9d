#!/usr/bin/env bash
# Fuzzes every reader for FUZZ_SECONDS (60) each, from its seed corpus. Inputs that crash, hang or make a reader ask for more
# than 256 MB at once land in out/fuzz/. Needs build-fuzz built: `make fuzz` sees to that.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${FUZZ_SECONDS:-60}

shopt -s nullglob
targets=(build-fuzz/bin/fuzz_*)
if [ ${#targets[@]} = 0 ]; then echo "no fuzz targets in build-fuzz/bin" >&2; exit 1; fi
for target in "${targets[@]}"; do
  name=${target##*/fuzz_}
  found=out/fuzz/$name
  mkdir -p "$found/corpus"
  echo "fuzzing $name for $seconds s"
  # New inputs go to the first folder; the seeds are only read.
  if ! "$target" "$found/corpus" "tests/fuzz/corpus/$name" -max_total_time="$seconds" -timeout=10 \
      -malloc_limit_mb=256 -artifact_prefix="$found/" -print_final_stats=1 >"$found/log" 2>&1; then
    tail -n 40 "$found/log" >&2
    echo "$name: failed; the input is in $found/" >&2
    exit 1
  fi
  awk '/number_of_executed_units/ { print "  " $2 " inputs, none failed" }' "$found/log"
done
