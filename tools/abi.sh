#!/bin/sh
# Compares the binary interface of libds.so with the committed one.
# usage: abi.sh check symbols|layout|abidiff BUILD [GOLDEN]    abi.sh renew BUILD
# GOLDEN (tests/abi) holds symbols.golden, layout.golden and ds.abi. renew also writes the files of tools/bindings.py.
set -eu
cd "$(dirname "$0")/.."
dump="python3 tools/api_dump.py include/ds.h"
# Options for abidw and abidiff: the types of our headers, and nothing that depends on this machine.
abidw_options="--headers-dir include --drop-private-types --no-show-locs --no-corpus-path --no-comp-dir-path
  --type-id-style hash --exported-interfaces-only"

exported() {
  nm -D --defined-only --with-symbol-versions "$1/lib/libds.so" | awk '$2 != "A" { print $3 }' | sort
}

layout() {
  $dump layout > "$1/layout.c"
  cc -Iinclude -o "$1/layout" "$1/layout.c"
  "$1/layout"
}

check() {
  what=$1
  build=$2
  golden=${3:-tests/abi}
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  case $what in
    symbols)
      exported "$build" > "$scratch/symbols"
      $dump symbols | sed 's/$/@@DS_0.1/' | sort > "$scratch/declared"
      diff -u --label declared --label exported "$scratch/declared" "$scratch/symbols" &&
      diff -u --label golden --label exported "$golden/symbols.golden" "$scratch/symbols" ;;
    layout)
      layout "$scratch" > "$scratch/now"
      diff -u --label golden --label now "$golden/layout.golden" "$scratch/now" ;;
    abidiff)
      abidiff --headers-dir2 include --drop-private-types --exported-interfaces-only "$golden/ds.abi" "$build/lib/libds.so" ;;
    *) echo "abi.sh: $what: not symbols, layout or abidiff" >&2; exit 2 ;;
  esac || { echo "abi: $what differ; if that is meant, run: ./run abi"; exit 1; }
}

renew() {
  mkdir -p tests/abi
  exported "$1" > tests/abi/symbols.golden
  layout "$1" > tests/abi/layout.golden
  python3 tools/op_helpers.py --renew "$1/lib/libds.so"
  python3 tools/bindings.py
  # docs/reference/config.md and config.schema.json.
  DS_RENEW_REFERENCE=1 "$1/bin/test_core" --gtest_brief=1 --gtest_filter='ConfigReference.*'
  # shellcheck disable=SC2086
  abidw $abidw_options "$1/lib/libds.so" | sed "s|path='[^']*/src/|path='src/|" > tests/abi/ds.abi
}

action=$1
shift
case $action in
  check) check "$@" ;;
  renew) renew "$@" ;;
  *) echo "abi.sh: $action: not check or renew" >&2; exit 2 ;;
esac
