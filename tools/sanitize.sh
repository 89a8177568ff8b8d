#!/bin/sh
# The sanitizer subset: test programs that are also built and run under ASan + UBSan (preset asan) and under
# TSan (preset tsan). usage: sanitize.sh list PRESET | build PRESET | run PRESET PROGRAM
set -eu
cd "$(dirname "$0")/.."
asan="core io comm exec kernels checkpoint data monitor fuzz"
tsan="core io comm exec"

action=$1
preset=$2
case $preset in
  asan) suites=$asan ;;
  tsan) suites=$tsan ;;
  *) echo "sanitize.sh: preset $preset: not asan or tsan" >&2; exit 2 ;;
esac

# Only suites whose folder has tests.
programs() {
  for suite in $suites; do
    [ -z "$(find "tests/$suite" -name '*_test.cpp' 2>/dev/null | head -n 1)" ] || echo "test_$suite"
  done
}

build() {
  [ -f "build/$preset/build.ninja" ] || cmake --preset "$preset"
  ninja -C "build/$preset" "$@"
}

case $action in
  list) programs ;;
  build)
    # shellcheck disable=SC2046
    build $(programs) ;;
  run)
    build "$3" > "build/$preset/$3.log" || { cat "build/$preset/$3.log"; exit 1; }
    export OMP_NUM_THREADS=1
    export ASAN_OPTIONS=strict_string_checks=1:detect_stack_use_after_return=1
    export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
    export TSAN_OPTIONS="suppressions=$PWD/tools/tsan.supp:halt_on_error=1"
    # TSan of gcc 12 needs a fixed address layout on kernels with much mmap randomness.
    fixed=
    [ "$preset" != tsan ] || ! setarch -R true 2>/dev/null || fixed="setarch -R"
    exec $fixed "build/$preset/bin/$3" --gtest_brief=1 ;;
  *) echo "sanitize.sh: $action: not list, build or run" >&2; exit 2 ;;
esac
