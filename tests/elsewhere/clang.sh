#!/bin/sh
# Compiles libds and its tests with clang 16 and warnings as errors, and runs the tests, on this machine.
# usage: clang.sh SOURCE BUILD [ARGUMENT OF CTEST]...
set -eu
source=$1
build=$2
shift 2
[ -f "$build/clang/build.ninja" ] ||
  CC=clang-16 CXX=clang++-16 PATH="$build/julia/usr/bin:$PATH" cmake --preset release -S "$source" -B "$build/clang" -DDS_WERROR=ON
ninja -C "$build/clang"
exec python3 "$source/tools/run_tests.py" "$build/clang" -j2 -LE sanitizer "$@"
