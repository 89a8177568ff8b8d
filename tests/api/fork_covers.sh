#!/bin/sh
# Checks that fork_test.c tries, in a forked child, every function of ds.h that accepts a handle and can fail.
# usage: fork_covers.sh DS_H FORK_TEST
set -eu
missing=$(sed 's|//.*||' "$1" | tr '\n' ' ' | tr ';' '\n' |
  sed -n 's/.*DS_API ds_status \(ds_[a-z_]*\)(.*ds_\(comm\|work\|stream\|tensor\|graph\|plan\|engine\)\* [a-z].*/\1/p' |
  while read -r call; do
    grep -q "refused($call(" "$2" || echo "$call"
  done)
[ -z "$missing" ] || { echo "not tried after a fork: $missing"; exit 1; }
