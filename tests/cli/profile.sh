#!/bin/sh
# Checks the table of a step: every operation of the program has a line, on one rank and on two, with files, and as JSON.
# usage: profile.sh LIBDS
. "$(dirname "$0")/begin.sh"

"$libds" profile --config "$here/tiny.json" --steps 2 > out
for op in linear linear_dx linear_dw attention layer_norm_dw cross_entropy adamw clip; do
  grep -Eq "^(comp|host) +$op +[0-9]+ .* %" out || fail "no line of $op: $(cat out)"
done
grep -q 'between instructions' out || fail "$(cat out)"
grep -Eq '^[0-9]+ tokens/s' out || fail "$(cat out)"

sed 's/"stage": 2/"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "."}/' "$here/tiny.json" > nvme.json
"$libds" launch -n 2 "$libds" profile --config nvme.json --dtype bf16 --micro-batch 1 --threads 1 --steps 1 > out
grep -q '2 x 1 threads, 1 x 1 x 32 tokens a rank, bf16, stage 3' out || fail "$(cat out)"
grep -Eq '^comm +all_gather ' out || fail "no collectives: $(cat out)"
grep -Eq '^read +load .* beside' out || fail "no files: $(cat out)"
[ "$(grep -c tokens/s out)" = 1 ] || fail "two ranks do not print once: $(cat out)"

# A step consists of its instructions and the time between them; no instruction is much faster than its limit.
"$libds" profile --model "$here/../data/models/gpt2" --steps 1 > out # of 48 positions
grep -q "4 x 48 tokens" out || { echo "default sequence: $(cat out)"; exit 1; }
"$libds" profile --model "$here/../data/models/gpt2" --seq 16 --by-instr --json > out
python3 - <<'END' || fail "$(head -c 600 out)"
import json
got = json.load(open("out"))
busy = sum(row["seconds"] for row in got["rows"])
assert abs(busy + got["between_seconds"] - got["step_seconds"]) < 1e-6, (busy, got["step_seconds"])
assert got["tokens"] == 4 * 16 and got["peak_bytes"] > 1e8
assert len(got["rows"]) > 50 and sum(row["flops"] for row in got["rows"]) > 1e6
END
