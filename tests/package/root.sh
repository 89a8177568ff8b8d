#!/bin/sh
# A minimal Debian with Python and nothing else, made by debootstrap: the machine that wheel and .deb are installed on. The next
# test of a build folder finds it there.
# usage: root.sh BUILD     prints its folder; ends with 77, saying why, where it cannot be made
set -eu
root=$1/package/root
[ "$(id -u)" = 0 ] || { echo "skipped: a root of Debian needs root" >&2; exit 77; }
command -v debootstrap > /dev/null || { echo "skipped: debootstrap is not installed" >&2; exit 77; }
if [ ! -e "$root/made" ]; then
  mirror=$(sh "$(dirname "$0")/../../tools/mirror.sh") ||
    { echo "skipped: Debian's mirror cannot be reached: apt's sources name none" >&2; exit 77; }
  mkdir -p "$root"
  /usr/lib/apt/apt-helper download-file "$mirror/dists/bookworm/Release" "$1/package/release" \
    > /dev/null 2>&1 || { echo "skipped: Debian's mirror cannot be reached" >&2; exit 77; }
  rm -rf "$root"
  debootstrap --variant=minbase --include=python3-minimal,python3-venv bookworm "$root" "$mirror" \
    > "$1/package/debootstrap.log" 2>&1 || { tail -n 5 "$1/package/debootstrap.log" >&2; exit 1; }
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  touch "$root/made"
fi
for package in g++ libdnnl2 libfmt9 libdnnl-dev; do
  [ ! -e "$root/var/lib/dpkg/info/$package.list" ] || { echo "$package is in the minimal root" >&2; exit 1; }
done
echo "$root"
