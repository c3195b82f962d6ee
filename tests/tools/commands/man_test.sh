#!/usr/bin/env bash
# man_test.sh FOLDER: checks the two manual pages, tools-gump(1) of the clone and gump(1) of the installed command. Programs
# that read manual pages find nothing to complain of, a page has each command and option of its command's help, and the
# two pages have different names.
# Exit code 77: there is neither man nor mandoc.
set -euo pipefail

folder=$1
top=$(cd "$(dirname "$0")/../../.." && pwd)
mkdir -p "$folder"
command -v mandoc >/dev/null || command -v man >/dev/null || {
  echo 'man: skipped, because nothing here reads manual pages: install man-db or mandoc'
  exit 77
}

# check NAME: the page NAME.1 in the folder, against the help in NAME.help.
check() {
  local name=$1 page=$folder/$1.1 missing=0 word
  if command -v mandoc >/dev/null; then mandoc -T lint -W warning "$page"; fi
  if command -v man >/dev/null; then
    LC_ALL=C.UTF-8 MANROFFOPT=-ww MANWIDTH=80 man --warnings -l "$page" 2>"$folder/warnings" | col -bx >"$folder/$name.txt"
    if [ -s "$folder/warnings" ]; then cat "$folder/warnings" && exit 1; fi
  fi
  grep -qi "^\.TH $name 1 " "$page" || { echo "$name.1 has another title" && missing=1; }
  [ "$(grep -A1 '^\.SH NAME' "$page" | sed -n '2s/ .*//p')" = "$name" ] || { echo "$name.1 describes another name" && missing=1; }
  # Only the page's source is compared: its lines do not depend on a width.
  while read -r word; do
    grep -qE -- "(^|[^a-z-])${word//-/\\\\-}([^a-z-]|$)" "$page" || { echo "not in $name.1: $word" && missing=1; }
  done < <(sed -nE 's/^  ([a-z]+).*/\1/p; s/^ {23,35}(-[a-zA-Z-]+): .*/\1/p' "$folder/$name.help" | sort -u)
  return $missing
}

python3 -B "$top/tools/man/make.py" "$folder/tools-gump.1"
"$top/tools/gump" help >"$folder/tools-gump.help"
check tools-gump
# packages.md says how to read it.
if command -v man >/dev/null; then
  shows=$(grep -o '`tools/man/make\.py | [^`]*`' "$top/docs/packages.md" | tr -d '`')
  (cd "$top" && PYTHONDONTWRITEBYTECODE=1 MANPAGER=cat bash -o pipefail -c "$shows") | grep '^TOOLS-GUMP(1)' >/dev/null
fi

# CMake writes the page and the command, and puts the version and the folders in.
sed 's/@PROJECT_VERSION@/0.0.0/' "$top/tools/package/gump.1.in" >"$folder/gump.1"
sh "$top/tools/package/gump.in" help >"$folder/gump.help"
check gump
