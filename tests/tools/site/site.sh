#!/usr/bin/env bash
# site.sh BUILD FOLDER: makes the site in FOLDER/html, and checks its links.
# Exit code 77: a package is missing.
set -euo pipefail

build=$1 folder=$2
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../../.." && pwd)
/usr/bin/python3 -c 'import mkdocs, pygments, pymdownx' 2>/dev/null && [ -d /usr/share/mkdocs/themes/material ] || {
  echo 'site: skipped, because a package is missing: install mkdocs mkdocs-material python3-pygments'
  exit 77
}
mkdir -p "$folder"

# The checker notices what it must.
rm -rf "$folder/wrong"
mkdir "$folder/wrong"
text=$(printf 'word %.0s' {1..30})
cat >"$folder/wrong/index.html" <<HTML
<title>wrong</title><p id="here">$text
<a href="#here">right</a> <a href="no.html">no file</a> <a href="#there">no id</a>
<script src="https://example.org/a.js"></script> <link rel="stylesheet" href="a.css">
HTML
echo 'p { background: url("//example.org/a.png"); }' >"$folder/wrong/a.css"
if python3 -B "$here/check_links.py" "$folder/wrong" >"$folder/wrong/problems" ||
  ! grep -q '1 pages, 3 links, 3 files loaded, 4 problems' "$folder/wrong/problems"; then
  cat "$folder/wrong/problems"
  echo 'check_links.py does not notice each of four mistakes'
  exit 1
fi

/usr/bin/python3 -B "$top/tools/site/build.py" "$build" "$folder" "$folder/html"
python3 -B "$here/check_links.py" "$folder/html"
# A directory with other files is left alone.
if /usr/bin/python3 -B "$top/tools/site/build.py" "$build" "$folder" "$folder/wrong" 2>"$folder/refused"; then
  echo 'the site was written over other files'
  exit 1
fi
grep -q 'has files that are no site' "$folder/refused"
