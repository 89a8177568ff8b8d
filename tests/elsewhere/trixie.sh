#!/bin/sh
# Runs ./run test on Debian 13 with warnings as errors, in a root of its own: newer g++, Python, oneDNN and all other
# libraries.
# usage: trixie.sh SOURCE BUILD [NAME]... NAME: as for ./run test
set -eu
source=$1
build=$2
shift 2
root=$(sh "$source/tests/package/root.sh" "$build" trixie trixie) || exit $?
exec sh "$source/tests/package/inside.sh" "$root" "cd /src; CI=true ./run build; exec ./run test $*" "$source"
