#!/bin/sh
# Standard descriptors that are closed when the command starts: all eight combinations train to the same bits,
# with states in scratch files that would otherwise get their numbers; a launcher without any of them works.
# usage: closed.sh LIBDS
set -eu
libds=$1
here=$(cd "$(dirname "$0")" && pwd)
# Where there is a tmpfs: its files take writes of any size, so text that goes into one does so unnoticed.
work=$(mktemp -d -p /dev/shm 2> /dev/null || mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
i=0
while [ $i -lt 100 ]; do
  echo "line $i of a text about shards, buckets and granules: $((i * 7919 % 1000))"
  i=$((i + 1))
done > text.txt
sed 's/"stage": 2/"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "."}/
     s/"sample_tokens": 4/"sample_tokens": 0/' "$here/tiny.json" > nvme.json

train() { "$libds" train --config nvme.json --data text.txt --steps 3 --quiet --dir "$1"; }
train 000 > out 2>&1
train 001 > out 2>&1 <&-
train 010 2> out >&-
train 011 2> out <&- >&-
train 100 > out 2>&-
train 101 > out <&- 2>&-
train 110 >&- 2>&-
train 111 <&- >&- 2>&-
wanted=$("$libds" verify --hash 000 | cut -d' ' -f1)
for run in 001 010 011 100 101 110 111; do
  got=$("$libds" verify --hash $run | cut -d' ' -f1)
  [ "$got" = "$wanted" ] || { echo "closed descriptors $run: $got, with all open $wanted"; exit 1; }
done

sed 's/"stage": 2/"stage": 3/' "$here/tiny.json" > two.json
"$libds" launch -n 2 "$libds" train --config two.json --data text.txt --steps 3 --quiet --dir two <&- >&- 2> err ||
  { echo "a launcher without standard input and output: $(cat err)"; exit 1; }
"$libds" launch -n 2 "$libds" train --config two.json --data text.txt --steps 3 --quiet --dir same > out
[ "$("$libds" verify --hash two | cut -d' ' -f1)" = "$("$libds" verify --hash same | cut -d' ' -f1)" ] ||
  { echo "a launcher without standard input and output: other bits"; exit 1; }
