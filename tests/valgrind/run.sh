#!/usr/bin/env bash
# run.sh PROGRAM: runs a test program under memcheck, which lets one thread run at a time. Every error fails, and so does
# memory that is lost. Left out are death tests, tests with large numbers or load, and all parallelism but the least and the
# most. --max-stackframe: runtime/sys/sanitizer.h. Exit code 77: there is no valgrind.
set -uo pipefail
command -v valgrind >/dev/null || exit 77
exec valgrind --quiet --fair-sched=yes --max-stackframe=131072 --error-exitcode=99 \
  --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite \
  "$1" --gtest_filter='-*Death*:*Million*:*VeryMany*:*UnderLoad*:*AtOnce*:*PROCS2:*PROCS4'
