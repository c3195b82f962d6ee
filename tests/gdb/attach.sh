#!/usr/bin/env bash
# attach.sh PREEMPT_STRESS_TEST: gdb attaches to a program with goroutines that are preempted a thousand times a second.
# It stops the program at a request and inside the handler, lets it go, and does so again. All the program's results must
# be right.
# Exit code 77: there is no gdb, or it may not attach to anything here.
set -euo pipefail

program=$1
command -v gdb >/dev/null || exit 77

log=$(mktemp)
trap 'rm -f "$log"' EXIT

visit() {
  timeout 60 gdb -nx -batch -p "$pid" -iex 'set debuginfod enabled off' \
    -ex 'handle SIGURG nostop noprint pass' \
    -ex 'tbreak gump::rt::preemptM' -ex 'continue' -ex 'bt 3' \
    -ex 'tbreak gump::rt::preemptedBySignal' -ex 'continue' -ex 'bt 3' -ex 'info threads' \
    -ex 'detach' </dev/null >"$log" 2>&1
}

# The program goes on until it gets a signal at the end (the limit is for four values of GOMAXPROCS).
exec {output}< <(GUMP_STRESS_SECONDS=400 exec "$program" --gtest_filter='*GOMAXPROCS2')
pid=$!
while read -r line <&"$output" && [[ $line != GUMP_STRESS_SEED=* ]]; do :; done

visits=0
while [ $visits -lt 3 ] && kill -0 "$pid" 2>/dev/null; do
  visit || { cat "$log" >&2; kill "$pid"; exit 1; }
  if grep -qE 'ptrace: |Could not attach' "$log"; then
    cat "$log"
    kill "$pid"
    exit 77
  fi
  # A visit that was too late for the second breakpoint does not count.
  grep -q 'hit Temporary breakpoint 2' "$log" && grep -q 'detached' "$log" || break
  visits=$((visits + 1))
done

kill -USR1 "$pid" 2>/dev/null || true
status=0
wait "$pid" || status=$?
cat <&"$output"
echo "visits of gdb: $visits"
[ $visits -gt 0 ] || cat "$log" >&2
[ $visits -gt 0 ] && [ $status -eq 0 ]
