#!/usr/bin/env bash
# Installs the library into an empty prefix and builds and runs a project that knows nothing but that prefix.
set -euo pipefail
kind=$1 source=$2 work=$3 compiler=$4
shared=OFF
[ "$kind" = shared ] && shared=ON

rm -rf "$work/prefix" "$work/consumer"
cmake -G Ninja -S "$source" -B "$work/library" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_UNITY_BUILD=ON -DBUILD_SHARED_LIBS=$shared -DGUMP_BUILD_TESTS=OFF -DGUMP_BUILD_EXAMPLES=OFF -DCMAKE_INSTALL_PREFIX="$work/prefix"
cmake --build "$work/library"
cmake --install "$work/library"

cmake -G Ninja -S "$source/tests/install" -B "$work/consumer" -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_PREFIX_PATH="$work/prefix"
cmake --build "$work/consumer"
"$work/consumer/consumer"

# The kind that was asked for is the kind that was used.
used=$(ldd "$work/consumer/consumer" | grep -c libgump || true)
[ "$used" = "$([ "$kind" = shared ] && echo 1 || echo 0)" ]
