#!/bin/sh
# Bad input: the right exit code and exactly one line on stderr that names what is wrong.
# usage: errors.sh LIBDS
libds=$1
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
bad=0

# refused CODE TEXT ARGUMENT...
refused() {
  code=$1
  text=$2
  shift 2
  "$libds" "$@" > out 2> err
  got=$?
  if [ $got -ne "$code" ] || [ "$(wc -l < err)" -ne 1 ] || ! grep -q '^libds: ' err || ! grep -q -- "$text" err; then
    echo "libds $*: exit code $got (want $code), stderr (want one line with '$text'):"
    cat err
    bad=1
  fi
}

printf '{"run": {"stepz": 3}, "train_micro_batch_size_per_gpu": 1}\n' > misspelt.json
printf '{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 2}\n' > batch.json
printf '{"run": \n' > broken.json
: > empty.txt

refused 2 subcommand
refused 2 resume train
refused 2 nonsense train --config "$here/tiny.json" --nonsense
refused 2 steps train --config "$here/tiny.json" --steps x
refused 2 "a command" launch -n 2
refused 2 prompt generate somewhere
refused 1 nope.json train --config nope.json
refused 1 "line" train --config broken.json
refused 1 run.stepz train --config misspelt.json
refused 1 train_batch_size train --config batch.json
refused 1 no/such/text train --config "$here/tiny.json" --data no/such/text
refused 1 "text" train --config "$here/tiny.json" --data empty.txt
refused 1 "data.paths" train --config "$here/tiny.json"
refused 1 "no run folder" train --resume .
refused 1 nowhere generate nowhere --prompt x
refused 1 nowhere verify --hash nowhere
[ ! -e runs/001 ] || { echo "a refused run left runs/001"; bad=1; }
exit $bad
