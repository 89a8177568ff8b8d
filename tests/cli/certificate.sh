#!/bin/sh
# Checks that `libds plan --certificate` writes a correct certificate of all ranks, at every stage and in both types, and that
# the checker finds a missing line.
# usage: certificate.sh LIBDS CHECK_CERTIFICATE
. "$(dirname "$0")/begin.sh"
check=$2

for stage in 0 1 2 3; do
  for bf16 in true false; do
    sed "s/\"stage\": 2/\"stage\": $stage/; s/^{/{\"bf16\": {\"enabled\": $bf16}, /" "$here/tiny.json" > config.json
    "$libds" plan --config config.json -n 3 --certificate plan.cert || fail "no certificate at stage $stage"
    [ "$("$check" < plan.cert)" = "certificate: ok" ] || fail "stage $stage bf16 $bf16: $("$check" < plan.cert | head -n 3)"
  done
done
[ "$(head -n 1 plan.cert)" = "certificate 3" ] || fail "not of three ranks: $(head -n 1 plan.cert)"
for program in init refresh step eval; do
  [ "$(grep -c "^program $program " plan.cert)" = 3 ] || fail "not every rank has a program $program"
done
"$libds" plan --config config.json -n 3 --certificate - | cmp -s - plan.cert || fail "standard output differs from the file"

line=$(grep -n '^order ' plan.cert | tail -n 1 | cut -d: -f1)
code=0
sed "${line}d" plan.cert | "$check" > out || code=$?
[ $code = 1 ] || fail "a certificate without its line $line: exit code $code"
grep -q 'is so, but is not claimed$' out || fail "$(cat out)"

code=0
"$libds" plan --config config.json -n 3 --rank 1 --certificate plan.cert 2> out || code=$?
[ $code = 2 ] || fail "a rank and a certificate: exit code $code"
code=0
"$libds" plan --config config.json --certificate /nowhere/plan.cert 2> out || code=$?
[ $code = 1 ] || fail "a file in no folder: exit code $code"
grep -q "^libds: .*'/nowhere/plan.cert': No such file or directory$" out || fail "$(cat out)"
