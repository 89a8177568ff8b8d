#!/bin/sh
# Runs the configuration of ./run train up to its bars, on our own Python files. After three steps the loss is above every bar,
# so the run must complete, name the bar that it missed, and fail.
# usage: flagship.sh LIBDS
set -u
libds=$(realpath "$1")
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/text"
n=0
for file in "$root"/tools/*.py "$root"/tests/*/*.py; do
  n=$((n + 1))
  cp "$file" "$work/text/$n.py"
done
cd "$work" || exit 1
fail() {
  echo "FAILED: $1"
  cat out err
  exit 1
}
code=0
OMP_NUM_THREADS=1 "$libds" launch -n 2 "$libds" train --config "$root/examples/train.json" --data text --steps 3 --dir run \
  > out 2> err || code=$?
[ $code -eq 1 ] || fail "exit code $code of a run above its bars, not 1"
for words in '^vocabulary: 2048 tokens' '^sample before the first step' '^sample after step 3' 'the run ends at step 3' \
  '^bits per byte of the [0-9]* held-out bytes: model .* unigram .* bigram .* gzip -9 '; do
  grep -q "$words" out || fail "no line '$words'"
done
grep -q 'run.bars: .* is not below unigram.*the run is complete' err || fail "the missed bar is not named"
for file in report.html metrics.csv trace.json data/tokenizer/tokenizer.json; do
  [ -s "run/$file" ] || fail "the run has left no $file"
done
