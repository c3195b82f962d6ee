#!/bin/sh
# Stands for a test that could not be built: skipped.sh REASON. ctest takes 77 for "skipped".
echo "skipped: $1"
exit 77
