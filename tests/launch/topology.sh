#!/bin/sh
# Binds ranks to the memory nodes of a machine that HWLOC_SYNTHETIC describes, with two nodes of one CPU. With levels "auto",
# collectives reduce within memory nodes first, and the bits must not change.
# usage: topology.sh BUILD SCRATCH
set -eu
build=$(cd "$1" && pwd)
source=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$2
rm -rf "$scratch"
mkdir -p "$scratch"
cd "$scratch"
libds=$build/bin/libds

die() { echo "topology: $*" >&2; exit 1; }
[ "$(nproc)" -ge 2 ] || { echo "skipped: one CPU is no two memory nodes"; exit 77; }
"$libds" env | grep -q "hwloc cannot be opened" && { echo "skipped: no hwloc"; exit 77; }
export HWLOC_SYNTHETIC="numa:2 core:1 pu:1"

. "$source/tests/support/training.sh"
make_training
for levels in hosts auto; do
  sed "1s/{/{\"comms_logger\": {\"enabled\": true}, \"topology\": {\"levels\": \"$levels\"}, /" config.json > $levels.json
  "$libds" launch -n 4 --bind numa "$libds" train --config $levels.json --data text --dir by_$levels > $levels.log 2>&1 ||
    { cat $levels.log; die "a run with levels $levels"; }
done
[ "$(hash_of by_hosts)" = "$(hash_of by_auto)" ] ||
  die "payload hashes differ: hosts $(hash_of by_hosts), auto $(hash_of by_auto)"
grep -q "groups 2x1" by_auto/communication.csv || { cat by_auto/communication.csv; die "no collective goes by memory nodes"; }
! grep -q "groups 2x1" by_hosts/communication.csv || die "collectives go by memory nodes unasked"
# The short form of the key has the same meaning. Ranks that are not bound form one level.
sed '1s/{/{"topology": "auto", /' config.json > short.json
"$libds" config short.json | grep -q 'topology.levels.*auto' || { "$libds" config short.json; die "the short form is not read"; }
sed '1s/{/{"comms_logger": {"enabled": true}, /' short.json > unbound.json
"$libds" launch -n 4 "$libds" train --config unbound.json --data text --quiet --dir by_none > none.log 2>&1 ||
  { cat none.log; die "a run of ranks that are not bound"; }
! grep -q "groups 2x1" by_none/communication.csv || die "ranks that are not bound have memory nodes"
echo "topology: bits $(hash_of by_auto) by hosts and by memory nodes"
