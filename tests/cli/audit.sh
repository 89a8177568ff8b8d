#!/bin/sh
# Audits a step on threads and on launched ranks, on a text and on random tokens, and as JSON. An audit must fail if a file
# returns a flipped bit.
# usage: audit.sh LIBDS FLIP_SHIM
. "$(dirname "$0")/begin.sh"
shim=$2

"$libds" audit --config "$here/tiny.json" -n 1 --top 3 > out || fail "exit code $?: $(cat out)"
grep -q '^audit of step 2: gpt, 1 x 1 threads, 1 x 2 x 32 tokens a rank of random ids, f32, stage 2' out || fail "$(cat out)"
[ "$(grep -c 'output [0-9]\[' out)" = 3 ] || fail "not three rows: $(cat out)"
tail -n 1 out | grep -Eq '^passed: [0-9]+ instructions, [0-9]+ within their bounds, [0-9]+ equal bit by bit, 0 not audited$' ||
  fail "no verdict: $(cat out)"

make_text 200
sed 's/"stage": 2/"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "."}/;
     s/"data": {/"data": {"paths": "text.txt", /' "$here/tiny.json" > nvme.json
"$libds" launch -n 2 "$libds" audit --config nvme.json --steps 1 --top 1 > out || fail "launched: $(cat out)"
grep -q '^audit of step 1: gpt, 2 x 1 threads, .* of the text, f32, stage 3, states on nvme' out || fail "$(cat out)"
[ "$(grep -c '^passed: ' out)" = 1 ] || fail "two ranks do not print once: $(cat out)"
"$libds" audit --config nvme.json -n 2 --json > out || fail "as JSON: $(cat out)"
python3 - <<'END' || fail "$(head -c 600 out)"
import json
got = json.load(open("out"))
assert got["failed"] == 0 and got["verdict"].startswith("passed: "), got["verdict"]
labels = {row["label"].split()[0] for row in got["rows"]}
assert {"all_gather", "reduce_scatter", "load", "save", "adamw", "linear_dw", "clip", "losses"} <= labels, labels
assert sorted(row["instruction"] for row in got["rows"]) == list(range(len(got["rows"])))
END

code=0
LD_PRELOAD="$shim" "$libds" audit --config nvme.json -n 1 --top 1 > out || code=$?
[ $code = 1 ] || fail "exit code $code with a turned bit: $(cat out)"
tail -n 1 out | grep -Eq '^FAILED: 1 of [0-9]+ instructions; the worst is [0-9]+, load .*, on rank 0$' || fail "$(cat out)"
grep -q ' other .* load .*the file no longer holds what was saved' out || fail "$(cat out)"
