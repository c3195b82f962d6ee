#!/usr/bin/env bash
# run.sh full|thin SOURCE WORK: builds a program that is optimised at link time, runs it, and lets check_tls.py look at
# its thread-local addresses. Exits with 77, "skipped", if a tool is missing, or on another architecture.
set -euo pipefail
kind=$1 source=$2 work=$3
case $kind in
  full) compiler=g++ tools=(gcc-ar) linker='' flags=-Wno-subobject-linkage ;; # it takes a unity build for a header
  thin) compiler=clang++ tools=(llvm-ar ld.lld) linker=-fuse-ld=lld flags='' ;;
esac
[ "$(uname -m)" = x86_64 ] || exit 77
for tool in "$compiler" "${tools[@]}" objdump python3; do
  command -v "$tool" >/dev/null || {
    echo "no $tool"
    exit 77
  }
done

cmake -G Ninja -S "$source/tests/lto" -B "$work" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_BUILD_TYPE=Release \
  -DGUMP_WERROR=ON -DCMAKE_UNITY_BUILD=ON -DBUILD_SHARED_LIBS=OFF -DCMAKE_EXE_LINKER_FLAGS="$linker" -DCMAKE_CXX_FLAGS="$flags"
cmake --build "$work"

# The kind that was asked for is the kind that was used: g++'s objects have LTO sections, clang's are bitcode.
object=$(find "$work" -name 'unity_switch_*.o')
case $kind in
  full) [[ $(readelf -SW "$object") == *.gnu.lto_* ]] ;;
  thin) [ "$(head -c 2 "$object")" = BC ] ;;
esac

for procs in 1 4; do
  [ "$(GOMAXPROCS=$procs "$work/lto_program")" = ok ]
  GOMAXPROCS=$procs timeout 60 "$work/lto_hooks" # ends only if calls of libc park
done

# A checker that is silent about a known bug proves nothing. See known_cached.cc.
"$source/tests/lto/check_tls.py" "$work/lto_program" \
  'gump::known::KeepsThreadLocal(): T1: mov' 'gump::known::KeepsErrno(): T3'
