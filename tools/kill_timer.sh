#!/bin/sh
# usage: tools/kill_timer.sh [BUILD [KILLS [RANKS]]]   (default: build 10 2)
# Trains a small model through `libds train` twice: once unbroken, once killed KILLS times after random times (SIGKILL
# to the launcher, with which its ranks die) and resumed. Passes when the last checkpoints have the same payload hash.
# Not part of CTest: it depends on time. SEED=n chooses other times.
set -eu
build=${1:-build} kills=${2:-10} ranks=${3:-2}
root=$(cd "$(dirname "$0")/.." && pwd)
libds=$(cd "$build" && pwd)/bin/libds
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat > "$work/config.json" <<END
{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": $((4 / ranks)),
 "gradient_clipping": 1.0, "optimizer": {"type": "AdamW", "params": {"lr": 0.001}},
 "zero_optimization": {"stage": 2},
 "model": {"family": "gpt", "layers": 2, "hidden": 64, "heads": 2, "positions": 64, "dropout": 0.1},
 "data": {"paths": ["$root/docs", "$root/src"]},
 "run": {"steps": 150, "save_every": 7, "sequence": 64, "threads": 1, "sample_tokens": 8}}
END

# train DIR: starts or resumes a run as a process group of its own; sets $group.
train() {
  if ls "$1"/checkpoints/*/manifest.json > /dev/null 2>&1; then
    set -- --resume "$1"
  else
    rm -rf "$1"
    set -- --config "$work/config.json" --dir "$1"
  fi
  setsid "$libds" launch -n "$ranks" "$libds" train "$@" --quiet > "$work/log" 2>&1 &
  group=$!
}

begin=$(date +%s%N)
train "$work/whole"
wait "$group" || { cat "$work/log"; exit 1; }
unbroken_ms=$((($(date +%s%N) - begin) / 1000000))

done=0 launches=0
while [ "$done" -lt "$kills" ]; do
  launches=$((launches + 1))
  [ "$launches" -le $((3 * kills)) ] || { echo "only $done kills in $((launches - 1)) launches"; exit 1; }
  train "$work/killed"
  # 5 to 25 % of the unbroken run's time
  sleep "$(awk -v seed="${SEED:-1}$done" -v ms="$unbroken_ms" 'BEGIN { srand(seed); print ms / 1000 * (0.05 + 0.2 * rand()) }')"
  if kill -s KILL -- "-$group" 2> /dev/null; then
    done=$((done + 1))
    last=$(ls "$work/killed/checkpoints" 2> /dev/null | tail -1)
    echo "kill $done of $kills: newest folder ${last:-none}"
  fi
  if wait "$group" 2> /dev/null; then
    echo "the run ended before kill $((done + 1)); beginning again"
    rm -rf "$work/killed"
  elif ! [ -d "$work/killed" ]; then
    cat "$work/log"
    exit 1
  fi
done
train "$work/killed"
wait "$group" || { cat "$work/log"; exit 1; }

whole=$("$libds" verify --hash "$work/whole/checkpoints")
killed=$("$libds" verify --hash "$work/killed/checkpoints")
echo "unbroken: $whole"
echo "killed:   $killed"
[ "${whole%% *}" = "${killed%% *}" ] || { echo "the states differ"; exit 1; }
echo "kill_timer: ok ($kills kills, $ranks ranks)"
