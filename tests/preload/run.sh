#!/usr/bin/env bash
# run.sh LIBRARY PROGRAM...: runs test programs with the library preloaded, which has a malloc of its own. (Programs that
# define malloc themselves are no use here.) Exit code 77: the loader does not find the library.
set -uo pipefail
library=$1
shift
LD_PRELOAD=$library cat /proc/self/maps 2>/dev/null | grep -F "$library" >/dev/null || exit 77
# The end of a process concerns malloc only if a thread is inside it. These tests end a process outside of malloc.
outside=(Compute Stdio ReadRaw ReadDeclared Park Yield WaitForLock)
GTEST_FILTER=-
for crowd in "${outside[@]}"; do GTEST_FILTER+=":ExitDeathTest.*/$crowd*"; done
export GTEST_FILTER
failed=0
for program in "$@"; do
  LD_PRELOAD=$library "$program" || failed=1
  if [ -z "$("$program" --gtest_list_tests | grep '^  ')" ]; then
    echo "$program has no test"
    failed=1
  fi
done
exit $failed
