#!/usr/bin/env bash
# traced.sh PROGRAM [argument...]: runs the program with its standard error put aside. If it fails, shows the lines of
# standard error that are no trace.
set -uo pipefail
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$@" 2>"$log"
status=$?
if [ $status -ne 0 ]; then grep -vE '^(SCHED |  [GMP][0-9]+: )' "$log" >&2; fi
if ! grep -q '^SCHED ' "$log"; then
  echo "no trace was printed" >&2
  exit 1
fi
exit $status
