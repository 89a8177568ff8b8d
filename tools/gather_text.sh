#!/bin/sh
# Chooses real text that every machine with Debian's python3 has: at most 16 MB of modules of Python's standard library, which are code with
# its documentation. It leaves out tables (encodings, data of pydoc), tests and files of other packages, so that the text is of one kind,
# and the same on each machine of a release.
#
# usage: gather_text.sh            print the chosen files, sorted
#        gather_text.sh FOLDER     copy them into FOLDER (made anew, unless the choice is unchanged)
#
# Deterministic: the same files on the machine give the same choice.
set -eu
LC_ALL=C
export LC_ALL

# Finds the standard library of the newest Python 3. With two versions, training and held-out text would have nearly the same files.
library() {
  newest=
  for found in /usr/lib/python3.*; do
    [ -f "$found/os.py" ] || continue
    minor=${found#/usr/lib/python3.}
    [ -n "$newest" ] && [ "$minor" -lt "${newest#/usr/lib/python3.}" ] || newest=$found
  done
  echo "$newest"
}

choose() {
  source=$(library)
  [ -n "$source" ] || return 0
  # Files above 256 KB are tables, and those under 1 KB contain little text.
  set --
  for other in dist-packages site-packages distutils lib2to3 ensurepip test tests encodings pydoc_data 'config-*' '_sysconfigdata*'; do
    set -- "$@" -o -name "$other"
  done
  shift
  find "$source" \( "$@" \) -prune -o -type f -name '*.py' -size -256k -size +1k -printf '%s %p\n' |
    grep -v ' .* ' | sort -k 2 | awk 'used + $1 <= 16000000 { used += $1; print $2 }'
}

if [ $# -eq 0 ]; then
  choose
  exit
fi
folder=${1%/}
mkdir -p "$(dirname "$folder")"
choose > "$folder.new"
if ! [ -s "$folder.new" ]; then
  echo "gather_text: no standard library of Python in /usr/lib/python3.*: install python3" >&2
  exit 1
fi
if [ -d "$folder" ] && cmp -s "$folder.new" "$folder.list"; then
  rm "$folder.new"
else
  rm -rf "$folder" "$folder.list"
  mkdir -p "$folder"
  xargs cp --parents -t "$folder" < "$folder.new"
  mv "$folder.new" "$folder.list"  # this comes last, so that an interrupted copy is made again
fi
echo "gather_text: $(wc -l < "$folder.list") files in $folder"
