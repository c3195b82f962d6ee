#!/usr/bin/env bash
# traced.sh PROGRAM [argument...]: runs it with its standard error put aside, and shows what is no trace if it fails.
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
