#!/bin/sh
# Builds and installs from an archive of the source, without git, on a bare Debian, by ./run build and ./run install. Then
# follows the first page of each language word for word; those of Rust and Julia up to their first section. Prints the time
# since apt has finished, which may be at most 6 minutes on an idle machine. Runs in the long form only.
# usage: source.sh SOURCE BUILD
set -eu
source=$1
build=$2
here=$source/tests/package
[ -n "${DS_LONG:-}" ] || { echo "skipped: in the long form alone (./run test --long package)"; exit 77; }
bare=$(sh "$here/root.sh" "$build") || exit $?
root=$build/package/source
rm -rf "$root"
cp -a "$bare" "$root"
trap 'rm -rf "$root"' EXIT
mkdir "$root/src"
# With git, all files of the working copy that git does not ignore; without git, all outside of build folders.
{ cd "$source" && git ls-files -z --cached --others --exclude-standard 2> /dev/null ||
    find . -name 'build*' -prune -o -name .cache -prune -o -type f -print0; } |
  (cd "$source" && tar --null --ignore-failed-read -T - -c) | tar -x -C "$root/src"
[ ! -e "$root/src/.git" ] || { echo "the archive has a .git"; exit 1; }
cat > "$root/pages.sh" << 'END'
set -eu
export DEBIAN_FRONTEND=noninteractive
cd /src
# The programs that each page presupposes: a C compiler, NumPy, cargo and julia.
apt-get -q update
apt-get -q install -y --no-install-recommends cargo patchelf pkg-config ca-certificates python3-numpy
bash tools/julia.sh build/julia
./run build 2>&1 | while IFS= read -r line; do
  case $line in "Processing triggers"*|"Setting up"*) date +%s > /installed ;; esac
  echo "$line"
done
./run install "$PWD/ds"
for page in c_program python rust julia; do
  case $page in rust|julia) first=--first ;; *) first= ;; esac
  python3 tests/readme/pages.py /src /src/build "docs/start/$page.md" --there $first
done
echo "seconds from the end of apt's installation: $(($(date +%s) - $(cat /installed)))"
END
sh "$here/inside.sh" "$root" "sh /pages.sh" > "$build/package/source.log" 2>&1 || {
  ! grep -q 'Temporary failure resolving\|Could not connect\|Unable to fetch' "$build/package/source.log" ||
    { echo "skipped: Debian's mirror cannot be reached"; exit 77; }
  tail -n 40 "$build/package/source.log"
  exit 1
}
grep -e ' differences$' -e '^seconds' "$build/package/source.log"
took=$(sed -n "s/^seconds from .*: //p" "$build/package/source.log")
[ "$took" -le 360 ] || { echo "more than 360 s: the machine was busy, or it is slower than two idle cores"; exit 1; }
