#!/bin/sh
# Verifies a model folder against its recorded numbers, on one rank and on two, with success and failure.
# usage: verify.sh LIBDS
. "$(dirname "$0")/begin.sh"
models=$(cd "$here/../data/models" && pwd)

"$libds" verify "$models/gpt2" --dtype f32 --kinds logits,loss,grad > out || fail "one rank: $(cat out)"
grep -q '^passed: 4 comparisons' out || fail "one rank: $(cat out)"
"$libds" launch -n 2 "$libds" verify "$models/gpt2" --stage 3 --tier nvme --kinds accum,bf16_accum > out ||
  fail "two ranks: $(cat out)"
[ "$(grep -c 'passed: 4 comparisons' out)" = 1 ] || fail "two ranks do not print once: $(cat out)"
"$libds" verify "$models/gpt2" --kinds loss --json | python3 -c 'import json, sys; assert json.load(sys.stdin)["failed"] == 0'

# The epsilon of the norms differs from the epsilon with which the numbers were recorded.
cp -r "$models/llama" broken
sed -i 's/"rms_norm_eps": 1e-05/"rms_norm_eps": 1e-03/' broken/config.json
code=0
"$libds" launch -n 2 "$libds" verify broken --kinds logits,grad > out || code=$?
[ $code = 1 ] || fail "exit code $code of a wrong model: $(cat out)"
grep -q 'beyond tolerance: grad rel: .*self_attn' out || fail "no name of a tensor: $(cat out)"
grep -q 'FAILED: 3 of 3 comparisons' out || fail "$(cat out)"
