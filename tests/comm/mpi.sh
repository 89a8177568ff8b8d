#!/bin/sh
# Ranks that mpirun starts: the collectives against their oracle, a run's bits against those over shared memory, and a
# rank that fails alone.  usage: mpi.sh BUILD SCRATCH
set -eu
build=$(cd "$1" && pwd)
source=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$2
rm -rf "$scratch"
mkdir -p "$scratch"
cd "$scratch"

die() { echo "mpi: $*" >&2; exit 1; }
# Several ranks on any number of cores, as any user, without a look at other hosts.
ranks() {
  count=$1
  shift
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 120 \
    mpirun --oversubscribe --bind-to none --mca btl self,vader,tcp -n "$count" "$@"
}

for count in 2 3; do
  ranks "$count" "$build/bin/test_comm" --gtest_color=no --gtest_filter='*Collectives*' > collectives.log 2>&1 ||
    { cat collectives.log; die "collectives of $count ranks"; }
  grep -q "PASSED.* 12 tests" collectives.log || { cat collectives.log; die "12 tests were to run on $count ranks"; }
done

mkdir text
cp "$source"/docs/*.md text
cat > config.json << 'END'
{"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true},
 "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "zero_optimization": {"stage": 3},
 "model": {"family": "gpt", "layers": 2, "hidden": 64, "heads": 2, "dropout": 0.1},
 "run": {"sequence": 32, "steps": 6, "threads": 1, "sample_tokens": 0, "seed": 3}}
END
"$build/bin/libds" launch -n 2 "$build/bin/libds" train --config config.json --data text --dir shm --quiet > shm.log 2>&1 ||
  { cat shm.log; die "a run over shm"; }
ranks 2 "$build/bin/libds" train --config config.json --data text --dir mpi --quiet > mpi.log 2>&1 ||
  { cat mpi.log; die "a run over mpi"; }
one=$("$build/bin/libds" verify --hash shm | cut -d' ' -f1)
two=$("$build/bin/libds" verify --hash mpi | cut -d' ' -f1)
[ -n "$one" ] && [ "$one" = "$two" ] || die "payload hashes differ: shm $one, mpi $two"

# Rank 1 is given another configuration: both say so, and nobody waits.
mkdir other
sed 's/1e-3/2e-3/' config.json > other/1.json
cp config.json other/0.json
if ranks 2 sh -c '"$0" train --config "other/$OMPI_COMM_WORLD_RANK.json" --data text --dir differ --quiet' \
  "$build/bin/libds" > differ.log 2>&1; then
  die "ranks with different configurations trained"
fi
grep -q "optimizer.params.lr" differ.log || { cat differ.log; die "the key that differs is not named"; }
echo "mpi: 2 and 3 ranks, bits $one"
