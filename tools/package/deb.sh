#!/usr/bin/env bash
# deb.sh [--no-build] TREE DIR: writes a source tree with a folder debian/ to TREE, and builds packages for Debian from it
# in DIR. With --no-build it only writes the tree. `tools/gump package` calls it.
set -euo pipefail

build=1
if [ "$1" = --no-build ]; then build=0 && shift; fi
top=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
tree=$1 out=${2:-}

# The files that git knows, or all files of an archive that was unpacked.
rm -rf "$tree"
mkdir -p "$tree"
cd "$top"
if git rev-parse --show-toplevel 2>/dev/null | grep -qxF "$top"; then
  git ls-files -z --cached --others --exclude-standard --deduplicate
else
  find . -path ./build -prune -o -type f -print0
fi | { while IFS= read -r -d '' file; do [ ! -e "$file" ] || printf '%s\0' "$file"; done } |
  tar -c --null --files-from=- | tar -x -C "$tree"

# debian/, with the version that the headers have. The name of a shared library's package is that of the library.
part() { sed -nE "s/^#define GUMP_VERSION_$1 //p" api/include/gump/version.h; }
version=$(part MAJOR).$(part MINOR).$(part PATCH)
soversion=$(part MAJOR)
if [ "$soversion" = 0 ]; then soversion=0.$(part MINOR); fi
date=$(git log -1 --format=%cD 2>/dev/null || date -R -r api/include/gump/version.h)
maintainer="${DEBFULLNAME:-The gumption maintainers} <${DEBEMAIL:-maintainers@gumption.invalid}>"
cp -r tools/package/debian "$tree/debian"
cd "$tree/debian"
mv changelog.in changelog
for file in *@SOVERSION@*; do mv "$file" "${file//@SOVERSION@/$soversion}"; done
sed -i "s/@SOVERSION@/$soversion/g; s/@VERSION@/$version/g; s/@DATE@/$date/g; s/@MAINTAINER@/$maintainer/g" \
  changelog control
[ $build -eq 1 ] || exit 0

# debhelper changes HOME, so ccache must be told where its objects are.
if command -v ccache >/dev/null; then
  CCACHE_DIR=$(ccache --get-config cache_dir)
  export CCACHE_DIR
fi
mkdir -p "$out"
rm -f "${tree%/*}"/*gump*_"$version"* "$out"/*gump*_"$version"*
cd "$tree"
DEB_BUILD_OPTIONS=${DEB_BUILD_OPTIONS:-parallel=$(nproc)} dpkg-buildpackage -us -uc
mv "${tree%/*}"/*gump*_"$version"* "$out"
