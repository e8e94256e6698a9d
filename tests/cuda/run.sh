#!/usr/bin/env bash
# Builds and runs every test that needs a card, the tests of its host logic, and Compute Sanitizer's memcheck, racecheck
# and initcheck over them. The last line is "N passed, N failed".
#
#   tests/cuda/run.sh [BUILD_FOLDER]
#
# Needs a card, its toolkit, CMake, a C++20 compiler, Eigen, yaml-cpp, Boost's headers and GoogleTest, and no network;
# whatever else halotap can use is left out when it is not there. JOBS=n sets how much is compiled at once.
set -euo pipefail
cd "$(dirname "$0")/../.."

build=${1:-build-cuda}
XDG_CACHE_HOME=$(realpath -m "$build")/cache
export XDG_CACHE_HOME
export HALOTAP_SOAK_STEPS=100000  # a few seconds of the asynchronous engine, opening, closing and resetting 500 streams
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0
failed=0

say() { echo "tests/cuda/run.sh: $*"; }

# How many tests the program's last lines say PASSED, FAILED or were SKIPPED.
in_log() { sed -n "s/^\[  $1  *\] \([0-9]*\) tests*.*/\1/p" "$log" | head -n 1; }

# Adds up what a program of tests counted. A test that was skipped did not run, and a program that died counts for one.
count() {
  local status=$1 good bad skipped
  good=$(in_log PASSED)
  bad=$(in_log FAILED)
  skipped=$(in_log SKIPPED)
  passed=$((passed + ${good:-0}))
  failed=$((failed + ${bad:-0} + ${skipped:-0}))
  if [ "$status" != 0 ] && [ -z "$bad" ]; then failed=$((failed + 1)); fi
}

run_tests() {
  local status=0 start=$SECONDS
  "$build/bin/$1" --gtest_brief=1 >"$log" 2>&1 || status=$?
  count "$status"
  say "$1: $(grep -E '^\[  (PASSED|FAILED|SKIPPED)' "$log" | head -n 3 | tr -s ' \n' ' ') $((SECONDS - start)) s"
  if [ "$status" != 0 ]; then
    grep -v '^\[  SKIPPED' "$log" | tail -n 60
  elif [ -n "$(in_log SKIPPED)" ]; then
    say "skipped: $(grep -m 1 -A 1 ': Skipped' "$log" | tail -n 1)"
  fi
}

# One run of a tool over the tests that a filter names is one check.
sanitize() {
  local tool=$1 program=$2 filter=$3 status=0 start=$SECONDS
  if ! command -v compute-sanitizer >/dev/null; then
    failed=$((failed + 1))
    say "$tool $program: failed, there is no compute-sanitizer"
    return
  fi
  # Blocking launches: what a tool adds to them would look like a card that does not answer.
  CUDA_LAUNCH_BLOCKING=1 timeout 180 compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 20 \
    "$build/bin/$program" --gtest_brief=1 --gtest_filter="$filter" >"$log" 2>&1 || status=$?
  if [ "$status" = 0 ] && grep -q '^\[  PASSED  \] [1-9]' "$log"; then
    passed=$((passed + 1))
    say "$tool $program: clean, $(sed -n 's/^\[  PASSED  \] //p' "$log") $((SECONDS - start)) s"
  else
    failed=$((failed + 1))
    say "$tool $program: failed, $((SECONDS - start)) s"
    tail -n 60 "$log"
  fi
}

# The golden cases through the command line, each cut at random and offline: one check a run.
verify_cases() {
  local folder tolerance start=$SECONDS before=$passed
  for folder in tests/data/golden/*/; do
    tolerance=$(sed -n 's/.*"torch_fp32_rel_l2": \([^,]*\),*/4 * \1 + 1e-7/p' "$folder/case.json")
    tolerance=$(awk "BEGIN { print $tolerance }")
    for cut in "--chunk random:1" --offline; do
      # shellcheck disable=SC2086  # an option and its value
      if "$build/bin/halotap" verify --model "$folder/model.yaml" --input "$folder/x.npy" --expect "$folder/y.npy" \
        --backend cuda --rel-l2 "$tolerance" --abs 1e-30 $cut >"$log" 2>&1; then
        passed=$((passed + 1))
      else
        failed=$((failed + 1))
        say "halotap verify $folder $cut: failed"
        cat "$log"
      fi
    done
  done
  say "halotap verify --backend cuda: $((passed - before)) golden cases and cuts, $((SECONDS - start)) s"
}

# A card that fails and one that hangs, through the command line: the CPU goes on, or nothing does.
rehearse_failures() {
  local case=tests/data/golden/stack_same out status
  out=$(mktemp -d)
  for failure in error:2 hang:2; do
    if HALOTAP_INJECT_DEVICE_FAILURE=$failure "$build/bin/halotap" replay --model "$case/model.yaml" \
      --input "$case/x.npy" --output "$out/y.npy" --backend cuda --chunk 16 --json >"$log" 2>&1 &&
      grep -q '"failover":{"device":"cuda' "$log" &&
      "$build/bin/halotap" verify --model "$case/model.yaml" --input "$case/x.npy" --expect "$out/y.npy" \
        --backend cpu >>"$log" 2>&1; then
      passed=$((passed + 1))
    else
      failed=$((failed + 1))
      say "replay with $failure: failed"
      cat "$log"
    fi
    status=0
    HALOTAP_INJECT_DEVICE_FAILURE=$failure "$build/bin/halotap" replay --model "$case/model.yaml" \
      --input "$case/x.npy" --output "$out/n.npy" --backend cuda --chunk 16 --fallback none >"$log" 2>&1 || status=$?
    if [ "$status" = 3 ] && [ ! -e "$out/n.npy" ]; then
      passed=$((passed + 1))
    else
      failed=$((failed + 1))
      say "replay with $failure and no fallback: exit code $status, expected 3"
      cat "$log"
    fi
  done
  rm -r "$out"
}

if ! nvidia-smi -L 2>/dev/null | grep -q GPU; then
  say "no card: nvidia-smi lists none"
  exit 2
fi
say "configuring and building in $build"
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DHALOTAP_CUDA=ON -DHALOTAP_TESTS=ON >"$log" 2>&1 ||
  { cat "$log"; exit 1; }
grep '^halotap' "$log" || true
programs=(kernels_tests cuda_tests cuda_engine_tests allocation_tests async_soak_tests)
# Left out of the build where a library is missing.
command_line=
if grep -q '^halotap .*with: [^;]*command line' "$log"; then command_line=halotap; fi
cmake --build "$build" --parallel "${JOBS:-$(nproc)}" --target "${programs[@]}" $command_line >"$log" 2>&1 || { cat "$log"; exit 1; }

for program in "${programs[@]}"; do run_tests "$program"; done
if [ -n "$command_line" ]; then
  verify_cases
  rehearse_failures
fi

# The sanitizers slow every launch down, the more the longer it is: tests of few and short ones.
blocks='*CudaBlock.ReadsAndWritesOnlyTheFramesThatAreReal*:*CudaBlock.GivesTheSameBitsInABatchOfAnyAlignment*'
blocks="$blocks:*CudaBlock.IsNearInBfloat16*"
streams='*ReadsAndWritesPlanar*/Cuda*:*WorksInPlace*/Cuda*:*LeavesNothingOfAStream*/Cuda*:*HoldsAFrame*/Cuda*'
streams="$streams:*TwoSmallPassesInLockstep/Cuda"
cases='CudaEngine.IsNotWhatAutoTakes*:*CaseIsNearInEveryPrecision/stack_mixed:*CaseIsNearInEveryPrecision/odd_channels_bias'
# Under racecheck the kernel of a stack hardly moves, and one that looks for its next pass not at all; tiles in more parts
# than one have a barrier that it does not follow (docs/architecture.md).
races='*ReadsAndWritesPlanar*/Cuda:*WorksInPlace*/Cuda:CudaStack.GivesTheSameBitsInShortChunks'
races="$races:*LeavesNothingOfAStream*/Cuda:*HoldsAFrame*/Cuda:*TwoSmallPassesInLockstep/Cuda"
for tool in memcheck racecheck initcheck; do
  executors=$streams
  if [ "$tool" = racecheck ]; then executors=$races; fi
  sanitize "$tool" cuda_tests "$blocks:$executors"
  sanitize "$tool" cuda_engine_tests "$cases"
done

echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
