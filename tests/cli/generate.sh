#!/bin/sh
# Continues texts with a model folder: the recorded tokens on one rank and on two, text, the end of text, and refusals.
# usage: generate.sh LIBDS
set -eu
libds=$1
models=$(cd "$(dirname "$0")/../data/models" && pwd)

fail() {
  echo "$1"
  exit 1
}

refused() {
  want=$1
  shift
  if out=$("$libds" generate "$@" 2>&1); then fail "not refused: $*"; fi
  case $out in *"$want"*) ;; *) fail "refused with '$out', not '$want'" ;; esac
  [ "$(printf '%s\n' "$out" | wc -l)" = 1 ] || fail "not one line: $out"
}

ids=125,86,84,11,31
want="55 58 49 55 105 105 105 55 76 76 76 55 34 39 39 39"
got=$("$libds" generate "$models/gpt2" --ids $ids --tokens 16 --temperature 0)
[ "$got" = "$want" ] || fail "gpt2: $got"
got=$("$libds" launch -n 2 "$libds" generate "$models/gpt2" --ids $ids --tokens 16 --temperature 0 --stage 3)
[ "$got" = "$want" ] || fail "two ranks: $got"
got=$("$libds" generate "$models/gpt2" --ids $ids --tokens 5 --top-k 1 --seed 7 --threads 1)
[ "$got" = "55 58 49 55 105" ] || fail "the first of one is the most probable: $got"
"$libds" generate "$models/llama" --ids 3,4,5 --tokens 8 --dtype bf16 > /dev/null || fail "llama in bf16"

# Beyond 8 tokens rope rotates differently: once with longrope, at every length with dynamic.
across() { "$libds" generate "$models/$1" --ids 21,24,39,29,25 --tokens 16 --temperature 0; }
[ "$(across phi3_longrope)" = "5 20 5 20 7 17 26 32 16 4 7 9 37 9 24 24" ] || fail "longrope: $(across phi3_longrope)"
[ "$(across llama_dynamic)" = "0 20 23 36 32 23 27 16 36 36 16 36 36 36 36 17" ] || fail "dynamic: $(across llama_dynamic)"

[ "$("$libds" generate --ids 010,0 "$models/gpt2" --tokens 2)" = "$("$libds" generate "$models/gpt2" --ids 10,0 --tokens 2)" ] ||
  fail "010 is ten, and the folder may come after the numbers"

refused "predicts masked tokens and cannot continue a text" "$models/bert" --ids 1,2 --tokens 4
refused "5 must be 0 to 127" "$models/gpt2" --ids 1,2,3,4,5,500 --tokens 1
refused "the prompt has 3 tokens and 100000 are requested" "$models/gpt2" --ids 1,2,3 --tokens 100000
refused "tokenizer" "$models/gpt2" --prompt words

# A prompt as text, by the tokenizer in the model's folder; single bytes of characters read as U+FFFD.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$models/mixtral" "$work/text"
cp "$models/../tokenizers/qwen2/tokenizer.json" "$work/text"
want=$(printf ']{tqj4\357\277\275Wmyo9vMW@ZI&~\357\277\275')
got=$("$libds" generate "$work/text" --prompt ']{tqj' --tokens 16 --temperature 0)
[ "$got" = "$want" ] || fail "text: $got"
refused "token 0 of the prompt must be 0 to 111, the vocabulary of '$work/text', got 220 from tokenizer '$work/text/tokenizer.json'" \
  "$work/text" --tokens 4 --prompt ' '

# An empty prompt consists of the tokens that the tokenizer puts before a text; if there are none, it is refused.
pieces=$(seq 0 110 | sed 's/.*/"t&":&/' | paste -sd, -)
begin_with() {
  printf '{"added_tokens":[{"id":111,"content":"<s>","special":true}],"model":{"type":"BPE","vocab":{%s},"merges":[]}%s}' "$pieces" "$1" \
    > "$work/text/tokenizer.json"
}
first() { "$libds" generate "$work/text" --prompt "$1" --tokens 6 --temperature 0; }
begin_with ''
begun=$(first '<s>')
case $begun in '<s>'t*t*) ;; *) fail "text of <s>: $begun" ;; esac
refused "prompt must have at least one token: an empty text has none" "$work/text" --prompt '' --tokens 6
begin_with ',"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}],
  "special_tokens":{"<s>":{"id":"<s>","ids":[111]}}}'
[ "<s>$(first '')" = "$begun" ] || fail "empty prompt: $(first '')"

# The end token comes from generation_config.json, and otherwise from config.json.
cp -r "$models/gpt2" "$work/ends"
sed -i 's/"eos_token_id": null/"eos_token_id": 49/' "$work/ends/config.json"
ends() { "$libds" generate "$work/ends" --ids $ids --tokens 6 --temperature 0 "$@"; }
[ "$(ends)" = "55 58 49" ] || fail "config.json: $(ends)"
[ "$(ends --ignore-eos)" = "55 58 49 55 105 105" ] || fail "--ignore-eos: $(ends --ignore-eos)"
echo '{"eos_token_id": [105, 3]}' > "$work/ends/generation_config.json"
[ "$(ends)" = "55 58 49 55 105" ] || fail "generation_config.json: $(ends)"
