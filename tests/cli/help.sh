#!/bin/sh
# Checks the texts that the command prints about itself: help in every spelling, defaults, examples, the version, and the
# picture of a plan.
# usage: help.sh LIBDS
set -eu
libds=$1
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() {
  echo "$1"
  exit 1
}

"$libds" --help > help
for words in "" "help"; do
  # shellcheck disable=SC2086
  "$libds" $words > out || fail "libds $words: exit code $?"
  cmp -s help out || fail "libds $words is not libds --help: $(cat out)"
done
for command in train generate plan env launch verify profile audit convert; do
  grep -q "^  $command " help || fail "no line of $command: $(cat help)"
  "$libds" help "$command" > out || fail "libds help $command: exit code $?"
  "$libds" "$command" --help | cmp -s - out || fail "libds help $command is not its --help"
  grep -q "^Example" out || fail "$command has no example: $(cat out)"
done
"$libds" help generate > out
grep -Eq -- '--temperature .*default 0\.[0-9]+\)' out || fail "no default of --temperature: $(cat out)"
code=0
"$libds" help nothing 2> out || code=$?
[ $code = 2 ] && grep -q "'nothing' is not a command" out || fail "libds help nothing: $code $(cat out)"
"$libds" --version | grep -Eq '^[0-9]+\.[0-9]+\.[0-9]+( \([0-9a-f]{7,}(-changed)?\))?$' || fail "$("$libds" --version)"

"$libds" plan --config "$here/tiny.json" -n 2 > out
grep -Eq '^model +[0-9.]+[kM]? parameters in [0-9]+ tensors; [0-9]+ tokens a step' out || fail "$(cat out)"
grep -Eq '^largest +[a-z0-9._]+ +\[[0-9,]+\]' out || fail "no largest tensor: $(cat out)"
grep -Eq '^device +total +[0-9]+ +[0-9]+\.[0-9]{2}  budget' out || fail "no MiB: $(cat out)"
head -1 out | grep -Eq '^fits: needs .* GiB of host memory \(2 ranks\), this machine has [0-9.]+ GiB' || fail "$(head -1 out)"
sed '1s/{/{"memory_budget": {"device": "100 KiB"},/' "$here/tiny.json" > small.json
code=0
"$libds" plan --config small.json -n 2 > out || code=$?
[ $code = 3 ] || fail "a plan beyond its budget: code $code"
head -1 out | grep -Eq '^does not fit: needs .* GiB per rank, but memory_budget.device is .*(it fits|it still needs)' || fail "$(head -1 out)"
grep -Eq '^device +total +[0-9]+ +[0-9.]+  budget 102400' out || fail "no table: $(cat out)"
code=0
"$libds" plan --config small.json -n 2 --json > out || code=$?
python3 -c 'import json, sys; assert json.load(open("out"))["fit"]["fits"] is False' && [ $code = 3 ] || fail "JSON: $code $(cat out)"
for form in --print "--svg -" "--certificate -"; do
  code=0
  # shellcheck disable=SC2086
  "$libds" plan --config small.json -n 2 $form > out 2> err || code=$?
  [ $code = 3 ] && [ -s out ] && grep -q '^libds: warning: does not fit: needs' err || fail "$form: $code $(cat err)"
done
sed 's/"hidden": 32/"hidden": 131072/' "$here/tiny.json" > huge.json
code=0
"$libds" plan --config huge.json > out || code=$?
[ $code = 3 ] && head -1 out | grep -q '^does not fit: needs .* GiB of host memory (1 rank), this machine has' || fail "huge: $code $(head -1 out)"
"$libds" plan --config "$here/tiny.json" -n 2 --svg a.svg
"$libds" plan --config "$here/tiny.json" -n 2 --svg - | cmp -s - a.svg || fail "two pictures differ"
python3 - a.svg <<'END' || fail "the picture is no SVG of four plans"
import sys
import xml.etree.ElementTree as tree
texts = [one.text for one in tree.parse(sys.argv[1]).iter("{http://www.w3.org/2000/svg}text")]
assert [text for text in texts if text.startswith("ZeRO-")] == [f"ZeRO-{s}, 2 ranks" for s in range(4)], texts
END
code=0
"$libds" plan --config "$here/tiny.json" --svg /nowhere/a.svg 2> out || code=$?
[ $code = 1 ] && grep -q "'/nowhere/a.svg': No such file" out || fail "a file that cannot be written: $code $(cat out)"
echo ok
