#!/usr/bin/env bash
# switch.sh EXAMPLE [argument...]: the stack can be walked at every instruction of a switch. EXAMPLE has goroutines that
# take turns.
# Exit code 77: there is no gdb that knows Python, or it may not trace anything here.
set -euo pipefail

command -v gdb >/dev/null && gdb -nx -batch -ex 'python print(1)' >/dev/null 2>&1 || exit 77

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# A goroutine that is stepped takes so long that it would be preempted.
export GOMAXPROCS=1 GODEBUG=asyncpreemptoff=1
timeout 100 gdb -nx -batch -x "$(dirname "$0")/switch.py" --args "$@" </dev/null >"$log" 2>&1 || true
if grep -qE 'ptrace: |Could not trace' "$log"; then
  cat "$log"
  exit 77
fi
if grep -qE '^walks: .*gumpGostart.* gumpMcall gumpMstart .*gumpSwitch; bad: 0$' "$log"; then
  grep '^walks: ' "$log"
else
  cat "$log"
  exit 1
fi
