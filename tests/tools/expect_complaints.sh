#!/bin/sh
# Self-test of a check, which must fail on its bad fixture and print each expected text. Exit code 77 means skipped.
# usage: expect_complaints.sh COMMAND... -- TEXT...
set -eu
command=
while [ "$1" != -- ]; do
  command="$command $1"
  shift
done
shift
code=0
output=$($command 2>&1) || code=$?
[ "$code" != 77 ] || { echo "$output"; exit 77; }
[ "$code" != 0 ] || { echo "accepted a bad fixture:$command"; exit 1; }
for text in "$@"; do
  printf '%s\n' "$output" | grep -qF -- "$text" || { printf 'not said: %s\nsaid:\n%s\n' "$text" "$output"; exit 1; }
done
