#!/bin/sh
# Fails, naming the files and the first place in each, when a C or C++ file differs from what clang-format-16 makes
# of it. usage: check_format.sh [FILE...]   (no file: every tracked one)
set -eu
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
