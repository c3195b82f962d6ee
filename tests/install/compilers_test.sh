#!/usr/bin/env bash
# compilers_test.sh WORK: compilers.sh counts a compiler without its linker apart, and fails if a compiler fails. Its compilers
# are scripts here, and so is pkg-config.
set -euo pipefail
work=$1
here=$(cd "$(dirname "$0")" && pwd)
rm -rf "$work"
mkdir -p "$work/bin" "$work/prefix"
touch "$work/prefix/gump-hooks.pc" "$work/prefix/libgump_interpose.so"

# script NAME LINE: a program of that name.
script() {
  printf '#!/bin/sh\n%s\n' "$2" >"$work/bin/$1"
  chmod +x "$work/bin/$1"
}
# What they compile is a program that succeeds.
for compiler in g++-97 clang++-97 clang++-98; do
  # shellcheck disable=SC2016  # the script expands them
  script $compiler 'while [ "$1" != -o ]; do shift; done; cp /bin/true "$2"'
done
script g++-98 'exit 1'
script ld.lld-97 'exit 1'
script pkg-config 'exit 0'

# says COUNTS STATUS COMPILER...: compilers.sh ends with this status, and the last count has these three numbers.
says() {
  local counts=$1 expected=$2 status=0
  shift 2
  PATH=$work/bin:$PATH "$here/compilers.sh" "$work/prefix" "$work/prefix" "$work/programs" "$@" >"$work/said" || status=$?
  if [ $status != "$expected" ] || [ "$(sed -n '/LTO,.*fail$/s/[^0-9 ]//gp' "$work/said" | xargs)" != "$counts" ]; then
    echo "expected $counts and status $expected; status $status, and it said:"
    cat "$work/said"
    exit 1
  fi
}
says '4 0 0' 0 g++-97 clang++-97
says '2 2 0' 0 clang++-97 clang++-98
grep -q '^clang++-98 .*not tried with LTO, because there is no ld.lld-98$' "$work/said"
says '2 0 2' 1 g++-97 g++-98
