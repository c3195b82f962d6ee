#!/usr/bin/env bash
# sanitized.sh PREFIX WORK COMPILER: builds sanitized.cc with each sanitizer and the installed library, which has none, and
# runs it. The program must work, and each of its bugs must be reported at its line. With ThreadSanitizer, and with
# MemorySanitizer, which only Clang has, the program must end with the library's message.
set -euo pipefail
prefix=$1 work=$2 compiler=$3
source=$(dirname "$0")
output=$work/output

cmake -G Ninja -S "$source" -B "$work" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_PREFIX_PATH="$prefix" -DCONSUMER_SANITIZED=ON
cmake --build "$work"

fail() {
  echo "sanitized_$*"
  cat "$output"
  exit 1
}

# works SANITIZER ARGUMENT: the program succeeds, and prints nothing but its line.
works() {
  "$work/sanitized_$1" "$2" >"$output" 2>&1 || fail "$1 $2: exit status $?"
  [ "$(cat "$output")" = works ] || fail "$1 $2: a report that is wrong"
}

# reports SANITIZER BUG: the program fails with a report that names the bug and its line.
reports() {
  if "$work/sanitized_$1" "$2" >"$output" 2>&1; then fail "$1 $2: no report"; fi
  grep -q "$2" "$output" || fail "$1 $2: another report"
  grep -q "sanitized.cc:$(grep -n "BUG: $2" "$source/sanitized.cc" | cut -d: -f1)\b" "$output" || fail "$1 $2: another line"
}

export UBSAN_OPTIONS=halt_on_error=1
for procs in 1 2 4; do
  export GOMAXPROCS=$procs
  for after_return in 0 1; do
    export ASAN_OPTIONS=detect_stack_use_after_return=$after_return:check_initialization_order=1:strict_string_checks=1
    works address works
    reports address heap-use-after-free
    reports address stack-buffer-overflow
    reports address 'memory leaks'
  done
  reports address stack-use-after-return
  # LeakSanitizer does not read fake stacks.
  ASAN_OPTIONS=detect_stack_use_after_return=0 works address parked
  ASAN_OPTIONS=detect_stack_use_after_return=0 works address checks

  works undefined works
  reports undefined 'signed integer overflow'

  works leak works
  works leak parked
  works leak checks
  # The fast unwinder of LeakSanitizer knows only the stacks of threads. So it finds no caller of an allocation on a
  # goroutine, and LeakSanitizer takes such a leak for one of the dynamic loader.
  LSAN_OPTIONS=fast_unwind_on_malloc=0 reports leak 'memory leaks'
done

# refuses SANITIZER NAME ADVICE: the program ends at its start, with one sentence.
refuses() {
  status=0
  "$work/sanitized_$1" works >"$output" 2>&1 || status=$?
  [ "$status" = 2 ] || fail "$1: exit status $status"
  [ "$(grep -c . "$output")" = 1 ] || fail "$1: not one sentence"
  grep -q "^gump: this program is built with $2 and its gump library is not: $3 " "$output" || fail "$1: another sentence"
}

refuses thread ThreadSanitizer link
if [ -x "$work/sanitized_memory" ]; then refuses memory MemorySanitizer use; fi
