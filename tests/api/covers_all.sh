#!/bin/sh
# Checks that the C tests call every function of ds.h, by the symbols that their programs import from libds.so.
# usage: covers_all.sh SOURCE_DIR PROGRAM...
set -eu
source=$1
shift
taken=$(nm -D --undefined-only "$@" | awk '/ ds_/ { sub("@.*", "", $NF); print $NF }' | sort -u)
missing=$(python3 "$source/tools/api_dump.py" "$source/include/ds.h" symbols | while read -r name; do
  echo "$taken" | grep -qx "$name" || echo "$name"
done)
[ -z "$missing" ] || { echo "no test in C calls:" $missing; exit 1; }
