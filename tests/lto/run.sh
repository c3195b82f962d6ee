#!/usr/bin/env bash
# run.sh full|thin SOURCE WORK: builds programs that are optimised at link time, runs them, and lets check_tls.py read
# what became of thread-local addresses. Exits with 77, "skipped", where the tools or the architecture are others.
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
  [ "$(GOMAXPROCS=$procs "$work/lto_pubsub" 10 200)" = '10 subscribers received 1500 messages' ]
done

for program in lto_program lto_pubsub; do "$source/tests/lto/check_tls.py" "$work/$program"; done

# A checker that is silent about a known bug proves nothing.
if known=$("$source/tests/lto/check_tls.py" "$work/lto_known_cached"); then
  echo "check_tls.py has not seen the bugs of known_cached.cc"
  exit 1
fi
echo "$known"
grep -q 'KeepsThreadLocal(): T1: mov *%fs:0x0,' <<<"$known"
grep -q 'KeepsErrno(): T3' <<<"$known"
