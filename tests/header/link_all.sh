#!/bin/sh
# Checks that a C99 program that uses the address of every declared function links with the library and runs.
# usage: link_all.sh SOURCE_DIR LIBRARY COMPILER...
set -eu
source=$1
library=$2
shift 2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 "$source/tools/api_dump.py" "$source/include/ds.h" link > "$scratch/link_all.c"
"$@" -std=c99 -Wall -Wextra -pedantic -Werror -I"$source/include" "$scratch/link_all.c" "$library" \
  "-Wl,-rpath,$(dirname "$library")" -o "$scratch/link_all"
"$scratch/link_all"
