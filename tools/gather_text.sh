#!/bin/sh
# Chooses real text that a Debian machine with a compiler already has: C and C++ headers, Perl and Python
# modules with their documentation, package and licence texts; at most 16 MB.
#
# usage: gather_text.sh            print the chosen files, sorted
#        gather_text.sh FOLDER     copy them into FOLDER (made anew; nothing is done when the choice is unchanged)
#
# Deterministic: the same files on the machine give the same choice. Each kind has a share; within a kind, files
# are taken in the order of a hash of their names, so that no letter of the alphabet is preferred.
set -eu
LC_ALL=C
export LC_ALL
tab=$(printf '\t')

# kind, its share in bytes, files as "size path"; files above 256 KB are tables, not text.
candidates() {
  list headers 6000000 /usr/include -name '*.h' -o -path '*/c++/*' ! -name '*.*'
  list perl 4000000 /usr/share/perl /usr/share/perl5 /usr/lib/*/perl-base -name '*.pm' -o -name '*.pod'
  list python 4000000 /usr/lib/python3* /usr/share/python3 -name '*.py'
  list texts 2000000 /usr/share/common-licenses /usr/share/doc -name copyright -o -name 'README*' -o -name '*.txt' \
    -o -path '/usr/share/common-licenses/*'
}

list() {
  kind=$1
  share=$2
  shift 2
  folders=
  while [ $# -gt 0 ] && [ "${1#/}" != "$1" ]; do
    [ ! -d "$1" ] || folders="$folders $1"
    shift
  done
  [ -n "$folders" ] || return 0
  # shellcheck disable=SC2086
  find $folders -type f -size -256k -size +0 \( "$@" \) ! -name '*.gz' -printf "$kind\t$share\t%s\t%p\n" 2>/dev/null ||
    true  # a folder that may not be read is left out
}

choose() {
  candidates | grep -v ' ' | awk -F "$tab" '
    BEGIN { for (i = 1; i < 256; i++) code[sprintf("%c", i)] = i }
    {
      hash = 7
      for (i = 1; i <= length($4); i++) hash = (hash * 31 + code[substr($4, i, 1)]) % 2147483647
      printf "%s\t%s\t%010d\t%s\t%s\n", $1, $2, hash, $3, $4
    }' | sort | awk -F "$tab" '
    # The next smaller file may still fit where a large one does not.
    used[$1] + $4 <= $2 { used[$1] += $4; print $5 }' | sort
}

if [ $# -eq 0 ]; then
  choose
  exit
fi
folder=${1%/}
mkdir -p "$(dirname "$folder")"
choose > "$folder.new"
if ! [ -s "$folder.new" ]; then
  echo "gather_text: no text under /usr/include, /usr/share and /usr/lib" >&2
  exit 1
fi
if [ -d "$folder" ] && cmp -s "$folder.new" "$folder.list"; then
  rm "$folder.new"
else
  rm -rf "$folder" "$folder.list"
  mkdir -p "$folder"
  xargs cp --parents -t "$folder" < "$folder.new"
  mv "$folder.new" "$folder.list"  # last: an interrupted copy is made again
fi
echo "gather_text: $(wc -l < "$folder.list") files in $folder"
