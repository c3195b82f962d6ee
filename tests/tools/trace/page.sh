#!/usr/bin/env bash
# page.sh FOLDER TRACED GUMP_TRACE TRACE_CHECK: a browser opens the page, without a window. The page tests itself, and the
# browser takes a picture of it in both themes, which stay in FOLDER.
# Exit code 77: there is no browser.
set -euo pipefail

folder=$1 traced=$2 gump_trace=$3
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || exit 77
rm -rf "$folder"
mkdir -p "$folder"
cd "$folder"

# browse ADDRESS [option...]: without a profile of the user's, and without a network.
browse() {
  local address=$1
  shift
  timeout 100 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$folder/profile" --window-size=1400,1500 \
    --proxy-server=127.0.0.1:9 --virtual-time-budget=20000 "$@" "$address" 2>browser.log || { cat browser.log; exit 1; }
}

"$traced" page.trace 180000  # a million events
"$gump_trace" page.trace
grep -Eq '"events":[0-9]{7},' page.html || { echo 'less than a million events'; exit 1; }
browse "file://$folder/page.html#selftest" --dump-dom >dom
sed -n '/<pre id="verdict">/,/<\/pre>/p' dom | sed 's/<[^>]*>//g' | tee verdict
grep -Eq '^all [0-9]+ claims hold$' verdict || { cat browser.log; exit 1; }

browse "file://$folder/page.html" --screenshot="$folder/light.png"
browse "file://$folder/page.html" --screenshot="$folder/dark.png" --blink-settings=preferredColorScheme=0
for picture in light dark; do
  # A page with nothing drawn is a tenth of that.
  [ "$(stat -c %s $picture.png)" -gt 50000 ] || { echo "$picture.png shows little"; exit 1; }
done
cmp -s light.png dark.png && { echo 'the two themes look the same'; exit 1; }

# A trace that is not whole says so on the page.
head -c $(($(stat -c %s page.trace) - 3)) page.trace >cut.trace
"$gump_trace" cut.trace 2>/dev/null
browse "file://$folder/cut.html#selftest" --dump-dom >dom
grep -Eq '^(<pre id="verdict">)?all [0-9]+ claims hold' dom || { sed -n '/<pre id="verdict">/,/<\/pre>/p' dom; exit 1; }
grep -q 'role="alert">This is a part of the trace. the file ends in the middle' dom || { echo 'no alert'; exit 1; }
