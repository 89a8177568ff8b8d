#!/bin/sh
# Trains over tcp, first with processes that the shell starts, then with those of libds launch. The runs must have the bits of a
# run over shared memory.
# usage: tcp.sh BUILD SCRATCH
set -eu
build=$(cd "$1" && pwd)
source=$(cd "$(dirname "$0")/../.." && pwd)
rm -rf "$2"
mkdir -p "$2"
cd "$2"
libds=$build/bin/libds
die() { echo "tcp: $*" >&2; exit 1; }

. "$source/tests/support/training.sh"
make_training

for ranks in 2 4; do
  # shellcheck disable=SC2086
  "$libds" launch -n $ranks $train --dir shm$ranks > shm.log 2>&1 || { cat shm.log; die "$ranks ranks over shm"; }
  started=
  for rank in $(seq 0 $((ranks - 1))); do
    # shellcheck disable=SC2086
    RANK=$rank WORLD_SIZE=$ranks DS_COMM_URL="tcp://$PWD/meet" timeout 120 $train --dir tcp$ranks > $rank.log 2>&1 &
    started="$started $!"
  done
  for process in $started; do wait $process || { cat ./[0-9].log; die "$ranks ranks over tcp"; }; done
  one=$(hash_of shm$ranks)
  [ -n "$one" ] && [ "$one" = "$(hash_of tcp$ranks)" ] || die "payload hashes of $ranks ranks differ"
  [ ! -e meet ] || die "the meeting point is left"
done

# The ranks form two groups, as if they were on two machines.
sed 's/"stage": 3/"stage": 3, "stage3_param_persistence_threshold": 100, "zero_hpz_partition_size": 2/; s/^{/{"topology": {"nodes": 2}, /' config.json > groups.json
started=
for rank in 0 1 2 3; do
  RANK=$rank WORLD_SIZE=4 DS_COMM_URL="tcp://$PWD/meet" timeout 120 "$libds" train --config groups.json \
    --data text --quiet --dir groups > $rank.log 2>&1 &
  started="$started $!"
done
for process in $started; do wait $process || { cat ./[0-9].log; die "4 ranks in groups over tcp"; }; done
[ "$(hash_of groups)" = "$(hash_of shm4)" ] || die "payload hashes of 4 ranks in groups differ"

# The configuration chooses tcp; the launcher sets ranks, address and port.
sed 's/^{/{"communicator": "env:tcp", "comms_logger": {"enabled": true}, /' config.json > chosen.json
"$libds" launch -n 2 "$libds" train --config chosen.json --data text --quiet --dir chosen > log 2>&1 ||
  { cat log; die "a run whose configuration names tcp"; }
[ "$(hash_of chosen)" = "$(hash_of shm2)" ] || die "payload hashes differ by the communicator"
[ -s chosen/communication.csv ] && grep -q ">Communication log<" chosen/report.html &&
  grep -q "<td>all_gather</td>" chosen/report.html ||
  die "the communication log is not in the run folder"
sed 's/^{/{"communicator": "env:ccl", /' config.json > chosen.json
if "$libds" launch -n 2 "$libds" train --config chosen.json --data text --quiet --dir none > log 2>&1; then
  die "a run over a transport that is not there"
fi
grep -q "comm url 'ccl' needs the plugin libds_ccl.so" log || { cat log; die "what ccl lacks is not said"; }
echo "tcp: 2 and 4 ranks, bits $one"
