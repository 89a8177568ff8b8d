#!/bin/sh
# Fails if clang-format-16 would change a C or C++ file, and names the files and the first place in each. Exits with 77 if
# clang-format-16 is not installed.
# usage: check_format.sh [FILE...]   (no file: every tracked one)
set -eu
command -v clang-format-16 > /dev/null || { echo "skipped: clang-format-16 is not installed"; exit 77; }
cd "$(dirname "$0")/.."
if [ $# -eq 0 ]; then
  # shellcheck disable=SC2046
  set -- $(git ls-files '*.h' '*.c' '*.cpp' '*.cu' ':!tests/tools/fixtures')
fi
if output=$(clang-format-16 --dry-run -Werror "$@" 2>&1); then
  echo "format: ok ($# files)"
else
  echo "$output" | grep ' error: ' | sort -t: -u -k1,1
  echo "format: run ./run fmt"
  exit 1
fi
