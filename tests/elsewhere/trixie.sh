#!/bin/sh
# Runs ./run test with warnings as errors in a root of Debian 13, which has newer versions of g++, Python and all libraries.
# usage: trixie.sh SOURCE BUILD [NAME]...     NAME: as for ./run test
set -eu
source=$1
build=$2
shift 2
root=$(sh "$source/tests/package/root.sh" "$build" trixie trixie) || exit $?
exec sh "$source/tests/package/inside.sh" "$root" "cd /src; CI=true ./run build; exec ./run test $*" "$source"
