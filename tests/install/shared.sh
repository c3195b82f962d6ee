#!/usr/bin/env bash
# shared.sh SOURCE WORK: what concerns the shared library alone. run.sh has installed it, and built the programs.
set -euo pipefail
source=$1 work=$2
library=$(readlink -f "$(find "$work/prefix" -name libgump.so)")

"$source/tests/install/check_symbols.py" "$library"

# The loader finds the minor version that a program was built with, and no other one.
minor=$(sed -nE 's/^#define GUMP_VERSION_(MAJOR|MINOR) //p' "$source/api/include/gump/version.h" | paste -sd.)
readelf -d "$library" | grep -qF "Library soname: [libgump.so.$minor]"

# The report of a program names the same frames if the library has been stripped. The runtime's own stay out of it.
mkdir -p "$work/stripped"
strip -o "$work/stripped/libgump.so.$minor" "$library"
report() {
  { LD_LIBRARY_PATH=$1 "$work/consumer/asleep" 2>&1 || true; } | sed -E '/^\t/d; s/0x[0-9a-f]+/ADDRESS/g'
}
report "${library%/*}" >"$work/whole.txt"
report "$work/stripped" >"$work/stripped.txt"
grep -q 'all goroutines are asleep' "$work/whole.txt"
diff "$work/whole.txt" "$work/stripped.txt"
# The program must have used the stripped one: `ldd` follows the same path.
LD_LIBRARY_PATH=$work/stripped ldd "$work/consumer/asleep" | grep -qF "$work/stripped/libgump.so"

# The installed command.
[ "$("$work/prefix/bin/gump" version)" = "$(sed -nE 's/^#define GUMP_VERSION_(MAJOR|MINOR|PATCH) //p' "$source/api/include/gump/version.h" | paste -sd.)" ]
if command -v pkg-config >/dev/null; then
  export XDG_CACHE_HOME=$work/cache CXXFLAGS=-O1
  "$work/prefix/bin/gump" run "$source/tests/install/consumer.cc"
  "$work/prefix/bin/gump" run --hooks "$source/tests/install/consumer_hooks.cc"
fi
GUMP_TRACE=$work/consumer.trace "$work/consumer/consumer"
"$work/prefix/bin/gump" trace -o "$work/consumer.html" "$work/consumer.trace"
grep -q '</html>' "$work/consumer.html"
for shell in bash zsh fish; do
  status=0
  "$source/tests/tools/commands/complete_test.py" $shell "$work/prefix" || status=$?
  [ $status = 0 ] || [ $status = 77 ]
done
