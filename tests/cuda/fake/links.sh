#!/bin/sh
# Trains ranks of a launcher, each on its own GPU. They are linked by NCCL if it exists, and otherwise through host memory.
# usage: links.sh LIBDS FAKE_DRIVER FAKE_BLAS FAKE_NCCL
export DS_CUDA_DRIVER="$2" DS_CUDA_BLAS="$3" DS_NCCL="$4"
. "$(dirname "$0")/../../cli/begin.sh"
make_text 400
sed 's|"optimizer"|"device": "cuda:0", "optimizer"|' "$here/../../cli/tiny.json" > cuda.json

# train NAME GPU: trains two ranks on GPUs with these numbers.
train() {
  "$libds" launch -n 2 sh -c "CUDA_VISIBLE_DEVICES=$2 exec $libds train --config cuda.json --data text.txt --steps 2 --dir $1" \
    > "$1.out" 2> "$1.err" || fail "no training of $1: $(cat "$1.err")"
  cut -d , -f 2 "$1/metrics.csv" > "$1.losses"
}
staged="collectives go through host memory, because"
train linked '$RANK'
! grep "$staged" linked.err || fail "ranks with a GPU each are not linked"
train shared 0
[ "$(grep -c "$staged ranks 0 and 1 share a GPU" shared.err)" = 1 ] || fail "$(cat shared.err)"
export DS_NCCL=/nowhere/libnccl.so
train none '$RANK'
[ "$(grep -c "$staged rank 0: there is no NCCL: /nowhere/libnccl.so: cannot open" none.err)" = 1 ] || fail "$(cat none.err)"
cmp linked.losses shared.losses
cmp linked.losses none.losses
grep -q '^[0-9.]\{5,\}$' linked.losses || fail "$(cat linked/metrics.csv)"

# If a stream hangs, the error names a rank and the collective.
export DS_NCCL="$4"
sed 's|"device"|"comm_timeout_ms": 2000, "device"|' cuda.json > short.json
mv short.json cuda.json
if DS_FAKE_NCCL_FAIL=hang:1:9 "$libds" launch -n 2 sh -c "CUDA_VISIBLE_DEVICES=\$RANK exec $libds train --config cuda.json --data text.txt --steps 2 --dir hung" > out 2> err; then
  fail "trained over a link that hangs"
fi
grep -q "rank [01] in [a-z_]* '.*': rank [01] has made no progress for 2000 ms" err || fail "$(cat err)"

# If NCCL refuses a call, the collective fails on the rank whose call is refused.
if DS_FAKE_NCCL_FAIL=call:0:5 "$libds" launch -n 2 sh -c "CUDA_VISIBLE_DEVICES=\$RANK exec $libds train --config cuda.json --data text.txt --steps 2 --dir refused" > out 2> err; then
  fail "trained over a link that refuses"
fi
grep -q "rank 0, [a-z]* instruction [0-9]* (\(all_\|reduce_\)[a-z_]* .*): device 'cuda:0', its link: nccl[A-Za-z]*: " err || fail "$(cat err)"

# If a GPU does not open, the other rank fails as well, both before a run and when an engine is created.
sed 's|2000|1000|' cuda.json > shorter.json
waits() {
  if "$libds" launch -n 2 sh -c "DS_FAKE_CUDA_OPEN_MS=\$((RANK * 4000)) CUDA_VISIBLE_DEVICES=\$RANK exec $libds $2 --config shorter.json" > out 2> err; then
    fail "no error of a GPU that does not open: $2"
  fi
  grep -q "rank 0 in [a-z_]* '$1': rank 1 has made no progress for 1000 ms" err || fail "$(cat err)"
}
waits device "train --data text.txt --steps 2 --dir slow"
waits "devices of ranks" "profile --steps 1"
