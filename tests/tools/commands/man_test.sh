#!/usr/bin/env bash
# man_test.sh FOLDER: writes the manual page into FOLDER and checks it: two programs that read manual pages find nothing to
# complain of, and the page has each command and option of the help.
# Exit code 77: there is neither man nor mandoc.
set -euo pipefail

folder=$1
top=$(cd "$(dirname "$0")/../../.." && pwd)
mkdir -p "$folder"
python3 -B "$top/tools/man/make.py" "$folder/gump.1"
judges=0
if command -v mandoc >/dev/null; then
  judges=$((judges + 1))
  mandoc -T lint -W warning "$folder/gump.1"
fi
if command -v man >/dev/null; then
  judges=$((judges + 1))
  LC_ALL=C.UTF-8 MANROFFOPT=-ww MANWIDTH=80 man --warnings -l "$folder/gump.1" 2>"$folder/warnings" | col -bx >"$folder/gump.txt"
  if [ -s "$folder/warnings" ]; then cat "$folder/warnings" && exit 1; fi
fi
[ $judges -gt 0 ] || {
  echo 'man: skipped, because nothing here reads manual pages: install man-db or mandoc'
  exit 77
}

# The page has what the help has. (Only the page's source is compared: its lines do not depend on a width.)
missing=0
while read -r word; do
  grep -qF -- "${word//-/\\-}" "$folder/gump.1" || { echo "not in gump.1: $word" && missing=1; }
done < <("$top/tools/gump" help | sed -nE 's/^  ([a-z]+).*/\1/p; s/^ {33,35}(-[a-zA-Z-]+): .*/\1/p' | sort -u)
exit $missing
