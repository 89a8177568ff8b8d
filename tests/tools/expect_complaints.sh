#!/bin/sh
# Self-test of a check: it must fail on its bad fixture and say each expected thing.
# usage: expect_complaints.sh COMMAND... -- TEXT...
set -eu
command=
while [ "$1" != -- ]; do
  command="$command $1"
  shift
done
shift
if output=$($command 2>&1); then
  echo "accepted a bad fixture:$command"
  exit 1
fi
for text in "$@"; do
  printf '%s\n' "$output" | grep -qF -- "$text" || { printf 'not said: %s\nsaid:\n%s\n' "$text" "$output"; exit 1; }
done
