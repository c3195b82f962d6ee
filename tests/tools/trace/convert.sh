#!/usr/bin/env bash
# convert.sh FOLDER TRACED GUMP_TRACE TRACE_CHECK: a trace of the library's is valid, for our checker and for Go's reader if
# there is one. The page and the JSON have what the trace has. A file that ends in the middle gives its whole generations.
set -euo pipefail

folder=$1 traced=$2 gump_trace=$3 trace_check=$4
rm -rf "$folder"
mkdir -p "$folder"
script=$(readlink -f "$0")
cd "$folder"
fail() {
  echo "$*"
  exit 1
}

"$traced" whole.trace
"$trace_check" whole.trace | tee checked || fail 'the trace is not valid'
grep -Eq '^whole\.trace: valid, go 1\.2[0-9], generations: [1-9][0-9]*, events: [0-9]{5,}, samples: [0-9]+$' checked ||
  fail 'not valid, or few events, or no samples'
if go version >/dev/null 2>&1 && { go tool trace -h 2>&1 || true; } | grep -q -e '-d='; then
  go tool trace -d=parsed whole.trace >parsed || fail "Go's reader refuses the trace"
  # Go's reader adds an event at each border of a generation.
  events=$(grep -c '^M=.*' parsed)
  syncs=$(grep -c '^M=.* Sync ' parsed)
  samples=$(grep -c '^M=.* StackSample ' parsed)
  counted="events: $((events - syncs - samples)), samples: $samples"
  [ "$counted" = "$(grep -o 'events: .*' checked)" ] || fail "Go's reader counts $counted"
fi

"$gump_trace" whole.trace
[ -s whole.html ] || fail 'no page'
"$gump_trace" --perfetto -o p.json whole.trace
python3 - <<'PYTHON'
import collections, json
events = json.load(open("p.json"))["traceEvents"]
phases = collections.Counter(e["ph"] for e in events)
assert phases["s"] == phases["f"] > 1000, phases
names = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
assert "P0" in names and any("Produce" in n or "RunAll" in n for n in names), names
# Slices of a track do not overlap.
tracks = collections.defaultdict(list)
for e in events:
    if e["ph"] == "X":
        tracks[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
for slices in tracks.values():
    slices.sort()
    for (_, end), (begin, _) in zip(slices, slices[1:]):
        assert end <= begin + 1e-3, (end, begin)
assert {e["name"] for e in events if e["ph"] == "b"} >= {"round", "all of a round"}
assert "numbers: 2000" in {e["name"] for e in events if e["ph"] == "i"}
samples = [e["args"]["stack"] for e in events if e.get("cat") == "cpu sample"]
assert any("Compute" in stack for stack in samples), samples
assert {"chan receive", "sleep"} <= {e["name"].removeprefix("waiting: ") for e in events if e.get("cat") == "waiting"}
PYTHON

size=$(stat -c %s whole.trace)
head -c $((size - 3)) whole.trace >cut.trace
status=0
"$trace_check" cut.trace >said || status=$?
[ $status -eq 1 ] || fail "trace_check ends with $status for a file that is cut off"
grep -q "^cut.trace: the file ends in the middle, at byte $((size - 3)); generation [0-9]* is incomplete and is left out$" said || fail "$(cat said)"
"$gump_trace" cut.trace 2>said || fail 'gump_trace refuses a file that is cut off'
grep -q 'cut.html shows what precedes that' said || fail "$(cat said)"
grep -q 'the file ends in the middle' cut.html || fail 'the page does not say that it is a part'

gump=$(dirname "$script")/../../../tools/gump
for line in '' '--nonsense whole.trace' 'whole.trace cut.trace' '--live'; do
  # shellcheck disable=SC2086
  if "$gump" trace $line 2>said; then fail "tools/gump trace accepts: $line"; fi
  grep -q '^gump: trace ' said || fail "$line: $(cat said)"
done

for bad in /dev/null nothing.trace "$script"; do
  if "$gump_trace" -o x.html "$bad" 2>said; then fail "gump_trace accepts $bad"; fi
  [ "$(wc -l <said)" -eq 1 ] && [ ! -e x.html ] || fail "$bad: $(cat said)"
done
