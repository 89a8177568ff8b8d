#!/bin/sh
# Runs a user's commands on "cuda:0" with the driver in software: text from models and from a run, a plan, and profiles.
# usage: commands.sh LIBDS FAKE_DRIVER FAKE_BLAS
DS_CUDA_DRIVER=$2 DS_CUDA_BLAS=$3
export DS_CUDA_DRIVER DS_CUDA_BLAS
. "$(dirname "$0")/../../cli/begin.sh"
make_text 400
models="$here/../../data/models"
tiny="$here/../../cli/tiny.json"
sed 's|"optimizer"|"device": "cuda:0", "optimizer"|' "$tiny" > cuda.json

# The tokens were recorded. The second and third model rotate keys by the length of the text (docs/reference/ops.md, rope).
continues() {
  got=$("$libds" generate "$models/$1" --ids "$2" --tokens "$3" --temperature 0 --device cuda:0) || fail "no text from $1"
  [ "$got" = "$4" ] || fail "$1: $got"
}
continues gpt2 125,86,84,11,31 16 "55 58 49 55 105 105 105 55 76 76 76 55 34 39 39 39"
continues phi3_longrope 21,24,39,29,25 16 "5 20 5 20 7 17 26 32 16 4 7 9 37 9 24 24"
continues llama_dynamic 21,24,39,29,25 16 "0 20 23 36 32 23 27 16 36 36 16 36 36 36 36 17"
if "$libds" generate "$models/gpt2" --ids 1 --tokens 1 --device cuda:7 2> err; then fail "text from a device that is not there"; fi
grep -q "device 'cuda:7': there is no such device" err || fail "$(cat err)"

# A run samples text while it trains, and can be continued on either device.
"$libds" train --config cuda.json --data text.txt --steps 2 --dir run > out 2> err || fail "no training: $(cat err)"
grep -q sample out || fail "no samples: $(cat out)"
"$libds" generate run --prompt "line " --tokens 8 --temperature 0 --device cuda:0 > there || fail "no text from a run"
"$libds" generate run --prompt "line " --tokens 8 --temperature 0 > here || fail "no text from a run on the CPU"
cmp here there || fail "another text: $(cat here there)"

# A plan needs no device and assumes separate memories. Its first line says what is known about the device.
"$libds" plan --config cuda.json --print > there || fail "no plan"
sed '1s/{/{"emulate_tiers": true,/' "$tiny" > apart.json
"$libds" plan --config apart.json --print > here
cmp here there || fail "another plan"
"$libds" plan --config cuda.json | head -1 > out
grep -q '^fits: needs .* GiB of memory of device cuda:0 (1 rank), which has .*; needs .* of host memory' out || fail "$(cat out)"
DS_CUDA_DRIVER=/nowhere/libcuda.so "$libds" plan --config cuda.json > out || fail "a plan asks for a driver"
grep -q '^fits: .* the memory of device cuda:0 is not known here (' out || fail "$(head -1 out)"

# The listed instructions of a profile have times, and the profile says that the limits of the device are not measured.
"$libds" profile --config cuda.json --steps 1 > out 2> err || fail "no profile: $(cat err)"
grep -q 'stage 2; mean of 1 steps, on cuda:0$' out || fail "$(cat out)"
grep -q 'the limits of this device are not measured' out || fail "$(cat out)"
for op in linear linear_dx linear_dw attention layer_norm_dw adamw clip; do
  grep -Eq "^(comp|host) +$op +[0-9]+ +[0-9.]+ +[0-9.]+ %" out || fail "no line of $op: $(cat out)"
done
! grep -q 'inf\|nan' out || fail "$(cat out)"
"$libds" launch -n 2 "$libds" profile --config cuda.json --steps 1 --threads 1 --by-instr --json > out 2> err || fail "$(cat err)"
grep -q '"peak_bytes": *0' out || fail "$(head -c 600 out)"

# An update on the host has one task for each run of a group, and their times add up.
sed 's|"stage": 2|"stage": 2, "offload_optimizer": {"device": "cpu"}|; s|"optimizer": {|"optimizer": {"no_decay": "norms_and_biases", |' \
  cuda.json > groups.json
"$libds" profile --config groups.json --steps 2 > out 2> err || fail "no profile of updates by groups: $(cat err)"
grep -Eq '^host +adamw +[0-9]+ +[0-9.]+ +[0-9.]+ %' out || fail "no line of an update on the host: $(cat out)"

# The timeline of a run and its times by module contain each instruction of the device once, in the order of its queue.
sed 's|"device"|"wall_clock_breakdown": true, "steps_per_print": 1, "device"|' cuda.json > modules.json
"$libds" train --config modules.json --data text.txt --steps 2 --dir modules > out 2> err || fail "no times by module: $(cat err)"
! grep -q 'no more reports' err || fail "$(cat err)"
grep -q 'computing forward [0-9.]*, backward' out || fail "no time of forward: $(cat out)"
python3 - run/trace.json <<'END' || fail "$(head -c 600 run/trace.json)"
import collections, json, sys
spans = [e for e in json.load(open(sys.argv[1]))["traceEvents"] if e["ph"] == "X"]
names = collections.Counter(e["name"].split()[0] for e in spans)
assert names["linear"] == names["linear_dw"] > 4 and names["clip"] == names["adamw"] > 0, names
ends = {}
# Spans are written queue by queue.
for e in spans:
    assert e["dur"] >= 0 and e["ts"] >= ends.get(e["tid"], e["ts"]) - 1e-3, (e, ends)
    ends[e["tid"]] = e["ts"] + e["dur"]
END

# "cuda" means the rank's own GPU. The ranks of a launcher spread over the existing GPUs, and the results stay the same.
sed 's|"cuda:0"|"cuda"|' cuda.json > own.json
own() {
  DS_NCCL=/nowhere/libnccl.so DS_FAKE_CUDA_DEVICES=$2 "$libds" launch -n 2 "$libds" train --config own.json --data text.txt \
    --steps 2 --dir "$1" > "$1.out" 2> "$1.err" || fail "no training of $1: $(cat "$1.err")"
  cut -d , -f 2 "$1/metrics.csv" > "$1.losses"
}
own one 1
grep -q "because ranks 0 and 1 share a GPU" one.err || fail "$(cat one.err)"
own two 2
grep -q "because rank 0: there is no NCCL" two.err || fail "$(cat two.err)"
cmp one.losses two.losses
DS_CUDA_DRIVER=/nowhere/libcuda.so "$libds" train --config own.json --data text.txt --steps 1 --dir none > out 2> err ||
  fail "no run without a driver: $(cat err)"
grep -q "there is no CUDA driver.*; the run goes on with the CPU" err || fail "$(cat err)"

"$libds" env --json > out || fail "no env"
grep -q 'cuda:0 fake GPU (sm_90)' out || fail "$(cat out)"
