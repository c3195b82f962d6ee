#!/usr/bin/env bash
# run.sh static|shared SOURCE BUILD WORK COMPILER: installs the library into an empty prefix, and builds and runs programs
# that know nothing but that prefix. The archive is that of BUILD. The shared library is built here, with the same flags,
# so that ccache has its objects. The programs are compiled once for both kinds: the paths below the common folder of the
# two WORKs are relative for ccache.
set -euo pipefail
kind=$1 source=$2 library=$3 work=$4 compiler=$5

rm -rf "$work/prefix" "$work/consumer" "$work/checked" "$work"/sanitized_*
if [ "$kind" = shared ]; then
  library=$work/library
  cmake -G Ninja -S "$source" -B "$library" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_BUILD_TYPE=Release \
    -DGUMP_WERROR=TESTED -DBUILD_SHARED_LIBS=ON -DGUMP_BUILD_TESTS=OFF -DGUMP_BUILD_EXAMPLES=OFF -DGUMP_INSTALL_TOOLS=ON
  cmake --build "$library"
fi
cmake --install "$library" --prefix "$work/prefix"

if command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_DEPEND=1 CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=${work%/*}
fi
cmake -G Ninja -S "$source/tests/install" -B "$work/consumer" -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_PREFIX_PATH="$work/prefix"
cmake --build "$work/consumer"
for program in "$work"/consumer/consumer*; do
  echo "$program"
  "$program"
done

# A program with a checking standard library, whose containers have another layout, and without RTTI. Its project asks for
# C++17, and the package raises that to C++20.
if [ "$kind" = static ]; then
  cmake -G Ninja -S "$source/tests/install" -B "$work/checked" -DCMAKE_CXX_COMPILER="$compiler" \
    -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_STANDARD=17 -DCMAKE_CXX_FLAGS="-D_GLIBCXX_DEBUG -fno-rtti"
  cmake --build "$work/checked" --target consumer_exec consumer_net consumer_sync
  for program in exec net sync; do "$work/checked/consumer_$program"; done
fi
for sanitizing in g++ clang++; do
  if command -v "$sanitizing" >/dev/null; then
    "$source/tests/install/sanitized.sh" "$work/prefix" "$work/sanitized_$sanitizing" "$sanitizing"
  fi
done

# The kind that was asked for is the kind that was used.
used=$(ldd "$work/consumer/consumer" | grep -c libgump || true)
[ "$used" = "$([ "$kind" = shared ] && echo 1 || echo 0)" ]

"$source/tests/install/pkgconfig.sh" "$kind" "$work/prefix" "$work" "$compiler"
if [ "$kind" = shared ]; then "$source/tests/install/shared.sh" "$source" "$work"; fi
