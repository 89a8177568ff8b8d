#!/bin/sh
# Starts the command with closed standard descriptors. All eight combinations must train to the same bits, with states in
# scratch files, which must not get the numbers of the closed descriptors. A launcher must work with standard input and output
# closed. Uses a tmpfs if possible, because its files accept writes of any size, so that no write of text to a scratch file
# would fail.
# usage: closed.sh LIBDS
scratch=
[ ! -w /dev/shm ] || scratch=/dev/shm
. "$(dirname "$0")/begin.sh"
make_text 100
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
  [ "$got" = "$wanted" ] || fail "closed descriptors $run: $got, with all open $wanted"
done

sed 's/"stage": 2/"stage": 3/' "$here/tiny.json" > two.json
"$libds" launch -n 2 "$libds" train --config two.json --data text.txt --steps 3 --quiet --dir two <&- >&- 2> err ||
  fail "a launcher without standard input and output: $(cat err)"
"$libds" launch -n 2 "$libds" train --config two.json --data text.txt --steps 3 --quiet --dir same > out
[ "$("$libds" verify --hash two | cut -d' ' -f1)" = "$("$libds" verify --hash same | cut -d' ' -f1)" ] ||
  fail "a launcher without standard input and output: other bits"
