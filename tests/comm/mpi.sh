#!/bin/sh
# Tests ranks that mpirun starts. Compares the results of collectives with expected results, and the bits of a run with those
# over shared memory. Also tests ranks that differ in their configuration or build, and variables that contradict mpirun.
# usage: mpi.sh BUILD SCRATCH
set -eu
build=$(cd "$1" && pwd)
source=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$2
rm -rf "$scratch"
mkdir -p "$scratch"
cd "$scratch"
libds=$build/bin/libds

die() { echo "mpi: $*" >&2; exit 1; }
# Starts several ranks on any number of cores, as any user.
ranks() {
  count=$1
  shift
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 120 \
    mpirun --oversubscribe --bind-to none --mca btl self,vader,tcp -n "$count" "$@"
}

for count in 2 3; do
  DS_TEST_GROUP=1 ranks "$count" "$build/bin/test_comm" --gtest_color=no --gtest_filter='All/*/mpi*' > collectives.log 2>&1 ||
    { cat collectives.log; die "collectives of $count ranks"; }
  grep -q "PASSED.* [1-9][0-9] tests" collectives.log || { cat collectives.log; die "all of them were to run on $count ranks"; }
done

. "$source/tests/support/training.sh"
make_training
# shellcheck disable=SC2086
{
  "$libds" launch -n 2 $train --dir shm > shm.log 2>&1 || { cat shm.log; die "a run over shm"; }
  ranks 2 $train --dir mpi > mpi.log 2>&1 || { cat mpi.log; die "a run over mpi"; }
}
one=$(hash_of shm)
two=$(hash_of mpi)
[ -n "$one" ] && [ "$one" = "$two" ] || die "payload hashes differ: shm $one, mpi $two"

# Rank 1 gets another configuration. The difference must be reported, and no rank may train.
mkdir other
sed 's/1e-3/2e-3/' config.json > other/1.json
cp config.json other/0.json
if ranks 2 sh -c '"$0" train --config "other/$OMPI_COMM_WORLD_RANK.json" --data text --dir differ --quiet' \
  "$libds" > differ.log 2>&1; then
  die "ranks with different configurations trained"
fi
grep -q "optimizer.params.lr" differ.log || { cat differ.log; die "the key that differs is not named"; }

# A rank number left in the environment is refused in every spelling, so that no rank trains alone.
for left in "WORLD_SIZE=1 RANK=0" "WORLD_SIZE=1 RANK=0 DS_COMM_URL=shm://left" "RANK=0"; do
  # shellcheck disable=SC2086
  if env $left OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 120 \
    mpirun --oversubscribe -n 2 $train --dir left > left.log 2>&1; then
    die "two trainings with $left"
  fi
  grep -q "\(WORLD_SIZE\|RANK\) is [0-9], but .*OMPI_COMM_WORLD_\(SIZE\|RANK\)" left.log ||
    { cat left.log; die "the variables that contradict each other are not named: $left"; }
  [ ! -e left ] || die "$left: a run folder"
done
# Each process that mpirun starts may launch a separate job. mpirun within a job of one rank is refused.
# shellcheck disable=SC2086
ranks 2 sh -c 'exec "$0" launch -n 1 "$@" --dir own$OMPI_COMM_WORLD_RANK' "$libds" $train > own.log 2>&1 ||
  { cat own.log; die "a job in each process of mpirun"; }
[ -e own0/metrics.csv ] && [ -e own1/metrics.csv ] || die "two jobs, and not two run folders"
# shellcheck disable=SC2086
if "$libds" launch -n 1 sh -c 'OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 2 "$@"' sh \
  $train --dir within > within.log 2>&1; then
  die "two trainings by mpirun within a job of one rank"
fi
grep -q "WORLD_SIZE is 1, but mpirun started 2 processes (OMPI_COMM_WORLD_SIZE)" within.log ||
  { cat within.log; die "mpirun within a job is not named"; }

# If rank 1 runs another build of libds, that build must be named.
ranks 1 "$build/bin/join_rank" env : -n 1 "$build/bin/join_rank" env || die "ranks of one build do not meet"
if ranks 1 "$build/bin/join_rank" env : -n 1 "$build/bin/join_rank_other" env > builds.log 2>&1; then
  die "ranks of two builds meet"
fi
grep "all ranks must run the same build" builds.log | grep -q "libds 9.8.7 (sources 0123456789)" ||
  { cat builds.log; die "the builds are not named"; }
echo "mpi: 2 and 3 ranks, bits $one"
