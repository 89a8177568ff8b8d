#!/bin/sh
# Checks a run on two ranks with Ctrl-C, failures and restarts, and the commands that use the run: resume, generate, verify,
# plan and env.
# usage: run.sh LIBDS
. "$(dirname "$0")/begin.sh"
make_text 400

# wait_until WHAT COMMAND...: waits a minute for COMMAND to succeed.
wait_until() {
  what=$1
  shift
  tries=0
  until "$@" 2> /dev/null; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || fail "waited in vain: $what: $(cat out)"
    sleep 0.1
  done
}
has_step_10() { grep -q 'step *10/' out; }
# A process that has ended may stay as a zombie: not every container's first process reaps orphans.
has_ended() { ! grep -q '^State:[[:space:]]*[^[:space:]ZX]' "/proc/$1/status"; }

"$libds" launch -n 2 "$libds" train --config "$here/tiny.json" --data text.txt --steps 4 --quiet > out
grep -q 'step *4/4' out || fail "no line of step 4: $(cat out)"
! grep -q 'schedule' out || fail "word of a schedule that there is not: $(cat out)"
[ -s runs/001/report.html ] && [ -s runs/001/metrics.csv ] && [ -s runs/001/trace.json ] || fail "run folder incomplete"

sed 's|"optimizer"|"scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 9, "warmup_num_steps": 2}}, "optimizer"|' \
  "$here/tiny.json" > schedule.json
"$libds" train --config schedule.json --data text.txt --steps 4 --quiet --dir early > out
[ "$(grep -c 'the run ends at step 4 (run.steps), before the end of its schedule at step 9' out)" = 1 ] ||
  fail "no word of the longer schedule: $(cat out)"
"$libds" train --config schedule.json --data text.txt --steps 9 --quiet --dir whole > out
! grep -q 'its schedule' out || fail "the schedule ends before the run: $(cat out)"

# A run whose held-out loss misses its bar completes and then fails with one line.
sed 's|"sample_tokens": 4|"sample_tokens": 4, "bars": ["gzip"]|' "$here/tiny.json" > bars.json
code=0
"$libds" train --config bars.json --data text.txt --steps 2 --quiet --dir barred > out 2> err || code=$?
[ $code -eq 1 ] && [ "$(wc -l < err)" = 1 ] && grep -q 'run.bars: the held-out loss after step 2' err ||
  fail "exit code $code for a missed bar: $(cat err)"
[ -s barred/report.html ] && grep -q 'bits per byte of the .* held-out bytes: model' out || fail "a missed bar leaves: $(cat out)"

# ended WHAT CODE: waits for $pid, which must end with CODE.
ended() {
  got=0
  wait $pid || got=$?
  [ $got -eq "$2" ] || fail "exit code $got (want $2) after $1: $(cat out)"
}

# Ctrl-C to the launcher saves and exits with 75; the resumed run reaches the same bits as an uninterrupted one.
# has_step_10 must not read the previous output.
: > out
"$libds" launch -n 2 "$libds" train --config "$here/tiny.json" --data text.txt --steps 100000 --quiet > out 2> err &
pid=$!
wait_until "step 10" has_step_10
kill -INT $pid
ended SIGINT 75
[ ! -s err ] || fail "a stop is no failure: $(cat err)"
grep -q 'go on with --resume runs/002' out || fail "no word of the stop: $(cat out)"
saved=$(sed -n 's/.*stopped after step \([0-9]*\).*/\1/p' out)
goal=$((saved + 3))
"$libds" launch -n 2 "$libds" train --resume runs/002 --steps $goal --quiet > out
"$libds" launch -n 2 "$libds" train --config "$here/tiny.json" --data text.txt --steps $goal --quiet > out
[ "$("$libds" verify --hash runs/002/checkpoints | cut -d' ' -f1)" = \
  "$("$libds" verify --hash runs/003/checkpoints | cut -d' ' -f1)" ] || fail "resumed run has other bits"

text=$("$libds" generate runs/001 --prompt "line 1" --tokens 8 --temperature 0)
case $text in "line 1"*) ;; *) fail "generated: $text" ;; esac
[ "$text" = "$("$libds" launch -n 2 "$libds" generate runs/001 --prompt "line 1" --tokens 8 --temperature 0)" ] ||
  fail "two ranks generate another text"

# A terminal would obey control characters, so their codes are printed instead; a file gets the text unchanged.
prompt=$(printf 'line\033[31m\302\233m')
on_terminal() { python3 -c 'import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) != 0)' "$@"; }
[ "$("$libds" generate runs/001 --prompt "$prompt" --tokens 1 --temperature 0 | head -c 12)" = "$prompt" ] ||
  fail "a file gets the prompt as it is"
on_terminal "$libds" generate runs/001 --prompt "$prompt" --tokens 1 --temperature 0 < /dev/null > shown ||
  fail "on a terminal: $(cat shown)"
grep -qF 'line\x1b[31m\x9bm' shown || fail "a terminal gets control characters: $(od -c shown)"

[ "$("$libds" verify --hash runs/001)" = "$("$libds" verify --hash runs/001/checkpoints)" ] || fail "hash of a run folder"
# A path is printed as it is.
odd='a "b" \c'
cp -r runs/001 "$odd"
"$libds" verify --hash "$odd" | grep -qF "  $odd/checkpoints/" || fail "a path with quotes: $("$libds" verify --hash "$odd")"
"$libds" verify "$odd" | grep -qF "  $odd/checkpoints/" || fail "a path with quotes: $("$libds" verify "$odd")"
rm -r "$odd"
"$libds" train --resume runs/001 --steps 4 | grep -q 'nothing is left to do' || fail "a finished run says nothing"

# One Ctrl-C is noticed during an evaluation of a million batches.
sed 's/"sequence": 32, "eval_samples": 2,/"sequence": 2, "eval_every": 1,/; s/"heldout": 0.1/"heldout": 0.9/' \
  "$here/tiny.json" > long.json
awk '{ all = all $0 "\n" } END { while (made < 5000000) { printf "%s", all; made += length(all) } }' text.txt > long.txt
"$libds" train --config long.json --data long.txt --quiet --dir long > out &
pid=$!
wait_until "a run folder" test -s long/metrics.csv
sleep 0.3
kill -INT $pid
ended "SIGINT in an evaluation" 75
grep -q 'go on with --resume long' out || fail "no word of the stop: $(cat out)"

# A second signal of another kind ends a run at once. A stopped process gets both together.
"$libds" train --config "$here/tiny.json" --data text.txt --steps 100000 --quiet --dir twice > out &
pid=$!
wait_until "a run folder" test -s twice/metrics.csv
kill -STOP $pid
kill -INT $pid
kill -TERM $pid
kill -CONT $pid
got=0
wait $pid || got=$?
[ $got -gt 128 ] || fail "exit code $got after SIGINT and SIGTERM: $(cat out)"

# If the reader of the output exits, the run prints this once, continues and saves. Processes that a rank starts do not inherit
# the ignored signal.
sed '1s/{/{"steps_per_print": 1,/' "$here/tiny.json" > talking.json
{ "$libds" launch -n 2 "$libds" train --config talking.json --data text.txt --steps 60 --dir piped --quiet 2> err
  echo $? > code; } | head -n 1 > first
[ "$(cat code)" = 0 ] || fail "a closed pipe ends a run with code $(cat code): $(cat err)"
[ "$(grep -c 'standard output: Broken pipe; the run goes on' err)" = 1 ] || fail "a closed pipe: $(cat err)"
[ "$(tail -n 1 piped/metrics.csv | cut -d, -f1)" = 60 ] || fail "not all steps: $(tail -n 1 piped/metrics.csv)"
"$libds" launch -n 1 sh -c 'grep SigIgn /proc/self/status' > here
"$libds" launch -n 1 "$libds" launch -n 1 sh -c 'grep SigIgn /proc/self/status' > there
grep SigIgn /proc/self/status > before
cmp before here && cmp before there || fail "a command inherits ignored signals: $(cat before here there)"
set +e
sh -c '"$0" env 2> err; echo $? > code' "$libds" | true
set -e
case "$(cat code)" in
  0) ;;
  1) grep -q '^libds: standard output: Broken pipe$' err || fail "a closed pipe: $(cat err)" ;;
  *) fail "env into a closed pipe: code $(cat code)" ;;
esac

# If files may not grow, no signal ends the run, the saved files remain, and the run can be resumed.
"$libds" train --config "$here/tiny.json" --data text.txt --steps 3 --dir grown --quiet > out
(ulimit -f 40; "$libds" train --resume grown --steps 6 --quiet) > out 2> err && fail "a save of files that may not grow"
grep -q "^libds: step 6 is not saved: .*File too large; the last checkpoint is 'grown/checkpoints/step-00000003-1'$" err ||
  fail "no word of the limit: $(cat err)"
"$libds" train --resume grown --steps 6 --quiet > out
[ "$(awk -F, '$2 != "" { print $1 }' grown/metrics.csv | tr '\n' ' ')" = "step 1 2 3 4 5 6 " ] || fail "not each step once: $(cat grown/metrics.csv)"

# verify prints the hashes of all checkpoints of a run or of one checkpoint by name, and detects a flipped bit.
[ "$("$libds" verify grown | wc -l)" = 2 ] || fail "verify of a run: $("$libds" verify grown)"
[ "$("$libds" verify grown)" = "$("$libds" verify grown/checkpoints)" ] || fail "verify of a folder of checkpoints"
[ "$("$libds" verify grown/checkpoints/step-00000006-2)" = "$("$libds" verify --hash grown)" ] || fail "verify of one"
python3 - grown/checkpoints/step-00000006-2/exp_avg.safetensors <<'END'
import sys
with open(sys.argv[1], "r+b") as file:
    file.seek(-9, 2)
    byte = file.read(1)
    file.seek(-9, 2)
    file.write(bytes([byte[0] ^ 4]))
END
for words in "--hash grown" grown grown/checkpoints/step-00000006-2; do
  "$libds" verify $words > out 2> err && fail "verify $words of a flipped bit returns 0"
  grep -q "^libds: .*tensor '[^']*' in '[^']*exp_avg.safetensors'" err || fail "verify $words: $(cat err)"
done
"$libds" verify grown > out 2> err || true
grep -q '^damaged  grown/checkpoints/step-00000006-2: ' out || fail "verify of a run: $(cat out)"
"$libds" launch -n 2 "$libds" train --resume grown --steps 7 --quiet > out 2> err || fail "no resume after damage: $(cat err)"
grep -q "is skipped, and the previous one is used, 'grown/checkpoints/step-00000003-1'" err || fail "no word of it: $(cat err)"

# If one rank is killed, the other rank leaves its flight record in the run folder.
: > out
"$libds" launch -n 2 "$libds" train --config "$here/tiny.json" --data text.txt --steps 100000 --dir dead --quiet \
  > out 2> err &
pid=$!
wait_until "step 10" has_step_10
read -r trainer < dead/lock
kill -KILL "$trainer"
set +e
wait $pid
[ $? -eq 137 ] || fail "a rank that is killed ends the job otherwise: $(cat err)"
set -e
grep -q 'rank 1 of 2: the last 64 of' dead/flight/rank_1.txt || fail "no flight record: $(ls dead) $(cat err)"
tail -n 1 dead/flight/rank_1.txt | grep -q 'failed' || fail "no failed operation: $(cat dead/flight/rank_1.txt)"
[ ! -e dead/flight/rank_0.txt ] || fail "a record of the dead"

# Rank 0 is killed twice, before and after the first save. The launcher restarts the run in the same folder, and the result has
# the bits of an uninterrupted run.
long="train --config $here/tiny.json --data text.txt --steps 200 --set run.save_every=50 --quiet"
# shellcheck disable=SC2086
"$libds" launch -n 2 "$libds" $long --dir undisturbed > out
cat > killed.sh << 'END'
"$@" &
case $RANK$DS_RESTART in
  00) sign=lock ;;
  01) sign=checkpoints/step-00000050-1/manifest.json ;;
  *)
    wait $!
    exit
    ;;
esac
tries=0
until [ -e runs/"$DS_RUN"/$sign ] || [ $tries = 2000 ]; do
  tries=$((tries + 1))
  sleep 0.01
done
kill -KILL $!
wait $!
END
# shellcheck disable=SC2086
"$libds" launch -n 2 --restarts 3 sh killed.sh "$libds" $long > out 2> err || fail "restarts: $(cat err)"
for line in "restart 1 of 3 on 2 ranks in 1 s" "restart 2 of 3 on 2 ranks in 2 s"; do
  grep -q "^libds launch: rank 0 exited with code 137; $line$" err || fail "no word of $line: $(cat err)"
done
[ "$("$libds" verify --hash undisturbed | cut -d' ' -f1)" = "$("$libds" verify --hash runs/launch-* | cut -d' ' -f1)" ] ||
  fail "a run that was started again has other bits"
# A configuration that is refused is started only once.
code=0
# shellcheck disable=SC2086
"$libds" launch -n 2 --restarts 5 "$libds" $long --set run.stepz=3 2> err || code=$?
[ $code -eq 78 ] && [ "$(grep -c '^libds launch: rank [01] exited with code 78; no restart: code 78 says' err)" = 1 ] &&
  [ "$(grep -c 'run.stepz' err)" -le 2 ] || fail "a refusal is started again: $code, $(cat err)"
code=0
# shellcheck disable=SC2086
"$libds" launch -n 2 --restarts 1 "$libds" $long --dir undisturbed 2> err || code=$?
[ $code -eq 1 ] && grep -q "'undisturbed' holds a run already" err || fail "a first start in the folder of a run: $(cat err)"

# kill -9 of the launcher also ends the processes that its ranks have started.
: > out
"$libds" launch -n 2 sh -c '"$0" train --config "$1" --data text.txt --steps 100000 --dir killed --quiet; true' \
  "$libds" "$here/tiny.json" > out 2> err &
pid=$!
wait_until "step 10" has_step_10
read -r trainer < killed/lock
kill -KILL $pid
wait_until "the end of rank 0, whose launcher is gone" has_ended "$trainer"

# A rank that computes differently from the others is named.
if "$libds" env | grep -Eq 'in use (avx|amx)'; then
  "$libds" launch -n 3 sh -c '[ "$RANK" -ne 1 ] || export DS_MAX_ISA=sse4
    exec "$0" train --config "$1" --data text.txt --steps 2 --dir mixed --quiet' "$libds" "$here/tiny.json" > out 2> err
  grep -q "ranks compute in different ways: isa .* on rank 0, sse4 on rank 1; .*bits depend on which rank" err ||
    fail "no word of a rank with other instructions: $(cat err)"
fi

"$libds" plan --config "$here/tiny.json" -n 2 | grep -q device || fail "plan without a table"
"$libds" plan --config "$here/tiny.json" -n 2 --print | grep -q '^program' || fail "plan without a program"
"$libds" env | grep -q O_DIRECT || fail "env without O_DIRECT"
"$libds" env | grep -Eq '^  linear_cross_entropy +gemm' || fail "env joins two columns: $("$libds" env)"
[ "$("$libds" launch -n 1 --log-dir=logs -- sh -c 'echo "$@"' sh -- -n 3)$(cat logs/rank_0.log)" = "-- -n 3" ] ||
  fail "launch does not hand a command's words on: $(cat logs/rank_0.log)"
set +e
"$libds" launch -n 2 sh -c 'exit 7' 2> err
[ $? -eq 7 ] || fail "launch does not pass the exit code on"
