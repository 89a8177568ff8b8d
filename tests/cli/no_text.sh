#!/bin/sh
# Checks that, without libds_text.so, a command that needs texts prints one line that names the package to install, and that
# `libds env` works. Also checks where the command finds the plugin, and a damaged plugin.
# usage: no_text.sh LIBDS LIBRARY PLUGIN
. "$(dirname "$0")/begin.sh"
library=$2
plugin=$3
mkdir lib
cp -L "$library" lib/libds.so.0
export LD_LIBRARY_PATH="$work/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
make_text 50

wanted='^libds: tokenizers and chat templates need libds_text.so, .* DS_PLUGIN_PATH: install the package libds-text$'
for command in "tokenize --data text.txt --out a.tokens" "train --config $here/tiny.json --data text.txt --dir run"; do
  code=0
  # shellcheck disable=SC2086
  "$libds" $command > out 2> err || code=$?
  [ $code -ne 0 ] && [ "$(grep -c "$wanted" err)" = 1 ] || fail "$command without the plugin: code $code, $(cat out err)"
done
"$libds" env > out
grep -q '^text  *no plugin$' out || fail "env without the plugin: $(cat out)"

cp "$plugin" lib
"$libds" env > out
grep -q '^text  *here$' out || fail "env with the plugin: $(cat out)"
"$libds" tokenize --data text.txt --out a.tokens > out || fail "with the plugin beside the library"
mkdir other
mv lib/libds_text.so other
DS_PLUGIN_PATH=$work/other "$libds" tokenize --data text.txt --out b.tokens > out || fail "with DS_PLUGIN_PATH"
cmp a.tokens b.tokens || fail "two files of one text differ"

printf 'no library\n' > lib/libds_text.so
code=0
"$libds" tokenize --data text.txt --out c.tokens > out 2> err || code=$?
[ $code -ne 0 ] && grep -q "plugin '.*/libds_text.so' cannot be loaded: " err || fail "a damaged plugin: code $code, $(cat out err)"
