#!/usr/bin/env bash
# Runs clang-format over the whole tree: `check_format.sh` reports what is not formatted, `check_format.sh -i` formats it.
set -euo pipefail
cd "$(dirname "$0")/../.."
mode=(--dry-run -Werror)
[ "${1:-}" = -i ] && mode=(-i)
find runtime netpoll sysmon api tests docs tools \( -name '*.h' -o -name '*.cc' \) -print0 |
  xargs -0 -r -n 8 -P "$(nproc)" clang-format "${mode[@]}"
