#!/bin/sh
# Checks that each check of tools/abi.sh detects a change of its golden file.
# usage: differs.sh SOURCE_DIR BUILD
set -eu
golden=$(mktemp -d)
trap 'rm -rf "$golden"' EXIT
cp "$1"/tests/abi/*.golden "$1/tests/abi/ds.abi" "$golden"
sed -i '/^ds_step@@/d' "$golden/symbols.golden"
sed -i 's/^  timeout_ms int64_t 16$/  timeout_ms int64_t 24/' "$golden/layout.golden"
sed -i "s/name='timeout_ms' type-id='[^']*'/name='timeout_ms_was' type-id='0'/; s/name='ds_step'/name='ds_stride'/g" \
  "$golden/ds.abi"
for what in symbols layout abidiff; do
  if output=$(sh "$1/tools/abi.sh" check $what "$2" "$golden" 2>&1); then
    echo "abi.sh check $what accepted a changed golden file"
    exit 1
  fi
  case $output in
    *"./run abi"*) ;;
    *) echo "abi.sh check $what said: $output"; exit 1 ;;
  esac
done
