# The scripts of this folder source this file, with LIBDS as their first argument. `scratch` may be set to the parent of the
# working folder.
set -eu
libds=$1
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d ${scratch:+-p "$scratch"})
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() {
  echo "$1"
  exit 1
}

# make_text LINES: writes text.txt.
make_text() {
  i=0
  while [ $i -lt "$1" ]; do
    echo "line $i of a text about shards, buckets and granules: $((i * 7919 % 1000))"
    i=$((i + 1))
  done > text.txt
}
