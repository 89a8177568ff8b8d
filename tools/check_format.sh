#!/bin/sh
# Fails, naming the places, when a C or C++ file differs from what clang-format-16 makes of it.
# usage: check_format.sh [FILE...]   (no file: every tracked one)
set -eu
cd "$(dirname "$0")/.."
if [ $# -gt 0 ]; then
  clang-format-16 --dry-run -Werror "$@"
else
  git ls-files -z '*.h' '*.c' '*.cpp' ':!tests/tools/fixtures' | xargs -0 -r clang-format-16 --dry-run -Werror
fi
echo "format: ok"
