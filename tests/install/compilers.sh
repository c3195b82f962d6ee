#!/usr/bin/env bash
# compilers.sh STATIC SHARED WORK [COMPILER...]: programs are compiled by each compiler, as C++20 and C++23, with and without
# link-time optimisation. They are linked with the archive below STATIC and the shared library below SHARED, and run. The
# library is as it is: it was built by one compiler. Without names, all compilers of this machine are used. Prints a line
# for each pair of compiler and standard, and a count, in which pairs that were not tried with LTO stand apart.
# `tools/gump matrix --programs` calls it.
set -euo pipefail
static=$1 shared=$2 work=$3
source=$(dirname "$0")
shift 3
programs=(consumer_go consumer_chan consumer_net consumer_hooks)

if [ $# -eq 0 ]; then
  # The oldest that the library supports are g++ 12 and clang++ 14.
  mapfile -t compilers < <(compgen -c | grep -xE '(g\+\+-(1[2-9]|[2-9][0-9])|clang\+\+-(1[4-9]|[2-9][0-9]))' | sort -uV)
  set -- "${compilers[@]}"
fi
[ $# -gt 0 ] || set -- g++ clang++
rm -rf "$work"
mkdir -p "$work"
log=$work/log
good=0 bad=0 without_lto=0

# flags PREFIX WHAT: what pkg-config says of the hooks, and so of the library, in a prefix.
flags() { PKG_CONFIG_PATH=$(dirname "$(find "$1" -name gump-hooks.pc)") pkg-config "$2" gump-hooks; }

# run COMPILER STANDARD OPTION...: true if all programs work.
run() {
  local compiler=$1 standard=$2 prefix program library
  shift 2
  for program in "${programs[@]}"; do
    # shellcheck disable=SC2046  # the flags are words
    "$compiler" -std="$standard" -O2 "$@" -c "$source/$program.cc" -o "$work/$program.o" $(flags "$static" --cflags) || return 1
    for prefix in "$static" "$shared"; do
      library=$(dirname "$(find "$prefix" -name 'libgump_interpose.so')")
      # shellcheck disable=SC2046
      "$compiler" "$@" "$work/$program.o" -o "$work/$program" $(flags "$prefix" --libs) -Wl,-rpath,"$library" || return 1
      "$work/$program" || return 1
    done
  done
}

for compiler in "$@"; do
  for standard in c++20 c++2b; do
    result=works
    lto=(-flto)
    if [[ $compiler == clang* ]]; then
      # A linker reads the code of clang only if both have the same version.
      linker=ld.lld${compiler#clang++}
      lto=(-flto=thin -fuse-ld="$(command -v "$linker" || true)")
    fi
    run "$compiler" $standard >>"$log" 2>&1 || result=fails
    if [ $result = works ] && [ "${lto[*]: -1}" = -fuse-ld= ]; then
      result="works; not tried with LTO, because there is no $linker"
    elif [ $result = works ] && ! run "$compiler" $standard "${lto[@]}" >>"$log" 2>&1; then
      result='fails with LTO'
    fi
    case $result in
      works) good=$((good + 1)) ;;
      works*) without_lto=$((without_lto + 1)) ;;
      *) bad=$((bad + 1)) ;;
    esac
    printf '%-12s %-6s %s\n' "$compiler" $standard "$result"
  done
done
echo "$good work with and without LTO, $without_lto were not tried with LTO, $bad fail"
[ $bad -eq 0 ] || echo "the errors are in $log"
exit $((bad > 0))
