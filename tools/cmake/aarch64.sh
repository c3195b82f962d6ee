#!/usr/bin/env bash
# aarch64.sh PROGRAM [argument...]: runs an AArch64 program that `tools/gump cross` has built, on this machine.
#
# A death test starts its own program again, by the name in argv[0]. The kernel cannot execute an AArch64 program. So
# argv[0] is the name of a link to this script, which lies beside the program.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
case $0 in
  *.qemu) program=${0%.qemu} ;;
  *)
    program=$1
    shift
    [ -e "$program.qemu" ] || ln -sf "$here/aarch64.sh" "$program.qemu"
    ;;
esac
libraries=$here/../../build/cross/sysroot/usr/lib/aarch64-linux-gnu
exec qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH="$libraries" -0 "$program.qemu" "$program" "$@"
