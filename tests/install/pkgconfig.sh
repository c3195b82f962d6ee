#!/usr/bin/env bash
# pkgconfig.sh static|shared PREFIX WORK COMPILER: programs are compiled with what pkg-config says of the library in PREFIX,
# and run.
set -euo pipefail
kind=$1 prefix=$2 work=$3 compiler=$4
source=$(dirname "$0")
command -v pkg-config >/dev/null || { echo "pkg-config is not installed: its files are not tested"; exit 0; }

libdir=$(dirname "$(find "$prefix" -name gump.pc)")
export PKG_CONFIG_PATH=$libdir LD_LIBRARY_PATH=${libdir%/pkgconfig}
mkdir -p "$work/pkgconfig"

# check MODULE PROGRAM: compiles the program with this module, and runs it.
check() {
  local flags program=$work/pkgconfig/$1-$2
  read -ra flags < <(pkg-config --cflags --libs "$1")
  "$compiler" -std=c++20 -O1 "$source/$2.cc" -o "$program" "${flags[@]}"
  "$program"
}

check gump consumer_net
check gump consumer_version
check gump-hooks consumer_hooks
[ "$(ldd "$work/pkgconfig/gump-consumer_net" | grep -c libgump)" = "$([ "$kind" = shared ] && echo 1 || echo 0)" ]
if [ "$kind" = static ]; then check gump-static consumer_version; fi

version=$(pkg-config --modversion gump)
grep -q "PACKAGE_VERSION \"$version\"" "$(find "$prefix" -name gumpConfigVersion.cmake)"
