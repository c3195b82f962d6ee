#!/usr/bin/env bash
# run.sh SEED PROGRAM...: runs test programs while the scheduler shuffles (GODEBUG fuzzsched; runtime/diag/fuzzsched.h).
# GUMP_FUZZ_SEED in the environment takes the place of SEED. Left out are death tests, which would find the seed in the
# output of dying programs, tests with large numbers, and tests that take long anyway. A program of which no test is left
# fails. GUMP_TEST_TIMEOUT is the limit of all programs. Each gets the rest of it, so that one that hangs says where
# (testing/deadline.cc).
set -u

seed=${GUMP_FUZZ_SEED:-$1}
shift
export GODEBUG=fuzzsched=$seed
export GTEST_FILTER='-*Death*:*EndTest*:*Million*:*Thousand*:*MayBeDestroyed*:*.TestPoolStress/*'
limit=${GUMP_TEST_TIMEOUT:-}
failed=0

failure() {
  failed=1
  printf 'fuzzsched=%s: %s\n' "$seed" "$1"
}

for program in "$@"; do
  # All output is printed at once, because ctest may end this at any moment.
  printf 'fuzzsched=%s: %s\n' "$seed" "$program"
  if [ -n "$limit" ]; then
    export GUMP_TEST_TIMEOUT=$((limit - SECONDS))
    if [ "$GUMP_TEST_TIMEOUT" -lt 10 ]; then
      failure "no time is left for $program"
      break
    fi
  fi
  if [ -z "$("$program" --gtest_list_tests | grep '^  ')" ]; then
    failure "$program has no test"
    continue
  fi
  "$program" 2>&1
  code=$?
  [ $code -eq 0 ] || failure "$program ended with $code"
done
exit $failed
