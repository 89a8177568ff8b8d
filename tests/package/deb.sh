#!/bin/sh
# Installs the .deb on a machine without compiler and -dev packages. apt-get must find its dependencies; the command and a
# program that was compiled against its headers must run. Without the package libds-text, a command that needs texts must
# name this package.
# usage: deb.sh SOURCE BUILD
set -eu
source=$1
build=$2
here=$source/tests/package
root=$(sh "$here/root.sh" "$build") || exit $?
work=$build/package/deb
rm -rf "$work" "$root/deb"
mkdir -p "$work" "$root/deb"
(cd "$build" && cpack -B "$work") > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
cp "$work"/libds_*_amd64.deb "$root/deb/libds.deb"
cp "$work"/libds-text_*_amd64.deb "$root/deb/libds-text.deb"
for plugin in text mpi tcp cuda; do
  [ ! -e "$build/lib/libds_$plugin.so" ] || dpkg-deb -c "$work/libds-$plugin"_*_amd64.deb | grep -q "/usr/lib/.*libds_$plugin.so" ||
    { echo "no package has libds_$plugin.so"; exit 1; }
done
dpkg-deb -c "$work"/libds-dbgsym_*.ddeb | grep -q '\.debug$' || { echo "no package has the debug information"; exit 1; }
for field in Maintainer Section Version Description; do
  [ -n "$(dpkg-deb -f "$root/deb/libds.deb" $field)" ] || { echo "the package has no $field"; exit 1; }
done
dpkg-deb -f "$root/deb/libds.deb" Depends | grep -q 'libdnnl[0-9.]* .*libfmt[0-9]'  # added by dpkg-shlibdeps
sh "$here/inside.sh" "$root" "
export DEBIAN_FRONTEND=noninteractive
apt-get -q update
apt-get -q install -y --no-install-recommends /deb/libds.deb
if ls /usr/lib/x86_64-linux-gnu/libsentencepiece.so* 2> /dev/null; then exit 1; fi
cd /deb
echo a text > text.txt
if libds tokenize --data text.txt --out text.tokens 2> said; then exit 1; fi
grep 'libds_text.so, .*: install the package libds-text' said
apt-get -q install -y --no-install-recommends /deb/libds-text.deb
libds tokenize --data text.txt --out text.tokens
" > "$work/apt.log" 2>&1 || {
  ! grep -q 'Temporary failure resolving\|Could not connect' "$work/apt.log" || { echo "skipped: Debian's mirror cannot be reached"; exit 77; }
  tail -n 20 "$work/apt.log"
  exit 1
}
cc -std=c99 -Wall -Wextra -Werror -I "$root/usr/include" "$root/usr/share/doc/libds/examples/quickstart.c" -L "$root/usr/lib" -lds \
  -Wl,--unresolved-symbols=ignore-in-shared-libs -o "$root/deb/quickstart"
sh "$here/inside.sh" "$root" "
libds env | head -n 1
/deb/quickstart | tail -n 1
libds launch -n 2 libds train --config /usr/share/doc/libds/examples/train.json --help > /dev/null
test -e /usr/lib/pkgconfig/ds.pc -a -e /usr/lib/cmake/ds/dsConfig.cmake -a -e /usr/share/doc/libds/docs/README.md
apt-get -q autoremove -y --purge libds > /dev/null 2>&1
test ! -e /usr/bin/libds -a ! -e /usr/lib/libds.so
"
rm -rf "$root/deb"
