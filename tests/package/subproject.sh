#!/usr/bin/env bash
# subproject.sh SOURCE WORK COMPILER: a project builds the library as a part of itself. One gets it from a git repository by
# FetchContent, by the tag of this version, and one has it in its tree. Neither gets tests, examples or install rules of the
# library.
set -euo pipefail
source=$1 work=$2 compiler=$3
projects=$source/docs/examples/projects
rm -rf "$work"
mkdir -p "$work"

# The repository has the files as they are now, and the tag of a release.
"$source/tools/package/deb.sh" --no-build "$work/repository"
git -C "$work/repository" init -q
git -C "$work/repository" add -A
git -C "$work/repository" -c user.name=test -c user.email=test@localhost commit -qm test
part() { sed -nE "s/^#define GUMP_VERSION_$1 //p" "$source/api/include/gump/version.h"; }
git -C "$work/repository" tag "v$(part MAJOR).$(part MINOR).$(part PATCH)"

command -v ccache >/dev/null && export CMAKE_CXX_COMPILER_LAUNCHER=ccache
# build PROJECT [option...]: many sources are compiled as one, which halves the time.
build() {
  local project=$1
  cmake -G Ninja -S "$projects/$project" -B "$work/$project" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_UNITY_BUILD=ON "${@:2}"
  cmake --build "$work/$project"
  [ "$("$work/$project/hello" | sort -u)" = hello ]
  [ "$("$work/$project/hello" | wc -l)" = 2 ]
  if cmake --build "$work/$project" --target help | grep -E '^(test_|http_server)'; then return 1; fi
  [ "$(ctest --test-dir "$work/$project" -N | sed -n 's/^Total Tests: //p')" = 0 ]
  # The project installs nothing, and so it installs nothing of the library.
  cmake --install "$work/$project" --prefix "$work/prefix"
  if [ -d "$work/prefix" ] && [ -n "$(find "$work/prefix" -type f)" ]; then
    find "$work/prefix" -type f
    return 1
  fi
}

build fetch_content -DGUMP_REPOSITORY="file://$work/repository"
build add_subdirectory -DGUMP_TREE="$work/fetch_content/_deps/gumption-src"
