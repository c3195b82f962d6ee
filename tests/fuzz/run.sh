#!/usr/bin/env bash
# run.sh SEED PROGRAM...: runs test programs while the scheduler shuffles (GODEBUG fuzzsched; runtime/fuzzsched.h).
# GUMP_FUZZ_SEED in the environment takes the place of SEED. Tests of what dying programs print are left out: they see the
# seed; and those that are about large numbers, or go on for long as it is.
set -u

seed=${GUMP_FUZZ_SEED:-$1}
shift
export GODEBUG=fuzzsched=$seed
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0
for program in "$@"; do
  "$program" --gtest_filter='-*Death*:*EndTest*:*Million*:*Thousand*:*MayBeDestroyed*:*Stress*' >"$log" 2>&1
  code=$?
  [ $code -eq 0 ] && continue
  failed=1
  cat "$log"
  printf 'fuzzsched=%s: %s ended with %s\n' "$seed" "$program" "$code"
done
exit $failed
