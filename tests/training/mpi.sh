#!/bin/sh
# Trains the points of the same-bits matrix on ranks that mpirun starts.
# usage: mpi.sh BUILD SCRATCH [RANKS]...
set -eu
build=$(cd "$1" && pwd)
scratch=$2
shift 2
[ $# -gt 0 ] || set -- 3 5 6 7
# The time limit in seconds for each number of ranks.
limit=100
[ "${DS_SAME_BITS:-}" != full ] || limit=1000
mkdir -p "$scratch"
# points COUNT TESTS FILTER: runs the tests that match FILTER on COUNT ranks, of which each must pass TESTS tests. Works on any
# number of cores and as any user.
points() {
  count=$1 tests=$2 filter=$3
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout "$limit" \
    mpirun --oversubscribe --bind-to none --mca btl self,vader,tcp -n "$count" "$build/bin/test_training" \
    --gtest_color=no --gtest_filter="$filter" > "$scratch/$count.log" 2>&1 ||
    { cat "$scratch/$count.log"; echo "mpi: $count ranks" >&2; exit 1; }
  [ "$(grep -c "PASSED.* $tests test" "$scratch/$count.log")" = "$count" ] ||
    { cat "$scratch/$count.log"; echo "mpi: $tests tests were to run on each of $count ranks" >&2; exit 1; }
}
for count in "$@"; do points "$count" 4 'All/SameBitsOver.*/mpi'; done
if [ "${DS_SAME_BITS:-}" = full ]; then
  points 128 1 'All/SameBitsOver.ATransportOfManyRanks/mpi'
  set -- "$@" 128
fi
echo "mpi: $* ranks"
