# Sourced by the scripts of this folder with LIBDS as the first argument, and the parent of the folder that they work in
# as `scratch`, if not the usual one.
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

# make_text LINES: text.txt
make_text() {
  i=0
  while [ $i -lt "$1" ]; do
    echo "line $i of a text about shards, buckets and granules: $((i * 7919 % 1000))"
    i=$((i + 1))
  done > text.txt
}
