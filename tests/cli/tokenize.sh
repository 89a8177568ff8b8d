#!/bin/sh
# Checks that `libds tokenize` writes the same file each time, that a run trains on this file, and which input is refused.
# usage: tokenize.sh LIBDS
libds=$1
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

fail() {
  echo "tokenize: $1"
  exit 1
}

mkdir text
for i in 1 2 3 4 5 6 7 8; do
  echo "The tide turns at $i, and the lantern of the harbour swings $i times." > "text/$i.txt"
done
"$libds" tokenize --data text --out a.tokens > said || fail "text"
grep -q '^a.tokens: [0-9]* tokens of 8 files' said || fail "says $(cat said)"
"$libds" tokenize --data text --out b.tokens > /dev/null || fail "text again"
cmp a.tokens b.tokens || fail "two files of one text differ"

printf '{"data": {"format": "tokens"}, "run": {"sequence": 16, "steps": 2, "sample_tokens": 0, "threads": 1},
  "train_micro_batch_size_per_gpu": 2, "model": {"family": "gpt", "layers": 1, "hidden": 16, "heads": 2}}\n' > train.json
"$libds" train --config train.json --data a.tokens --dir run --quiet > log || fail "training: $(cat log)"
grep -q '^step *2/2' log || fail "two steps: $(cat log)"

printf '{%% for m in messages %%}{{ m.content }}\n{%% endfor %%}' > chat.jinja
printf '{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "answer"}]}\n' > chat.jsonl
"$libds" tokenize --data chat.jsonl --format jsonl --chat-template chat.jinja --out chat.tokens > said || fail "jsonl"
grep -q 'jsonl: 1 lines, 9 tokens, 7 of them targets' said || fail "says $(cat said)"

# A truncated file ends the run with an error that names the file. A file of tokens is refused as text.
head -c 200 a.tokens > short.tokens
"$libds" train --config train.json --data short.tokens --dir short --quiet 2> err && fail "a short file is taken"
grep -q 'short.tokens: has 200 bytes, but .* need' err || fail "short: $(cat err)"
test -e short && fail "a folder is left"
"$libds" tokenize --data a.tokens --out c.tokens 2> err && fail "tokens are no text"
test -e c.tokens && fail "a file is left"
exit 0
