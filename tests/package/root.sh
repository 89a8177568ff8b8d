#!/bin/sh
# Creates a minimal Debian with only Python by debootstrap, on which the tests install the wheel and the .deb. Other tests
# use further roots, each with a NAME. SUITE is a release of Debian, by default the release of this machine. Later tests with
# the same build folder reuse the root. Prints the folder of the root. If this user is not root, debootstrap is not installed or
# no mirror can be reached, prints this and ends with 77.
# usage: root.sh BUILD [NAME SUITE]
set -eu
name=${2:-root}
suite=${3:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
root=$1/package/$name
[ "$(id -u)" = 0 ] || { echo "skipped: a root of Debian needs root" >&2; exit 77; }
command -v debootstrap > /dev/null || { echo "skipped: debootstrap is not installed" >&2; exit 77; }
if [ ! -e "$root/made" ]; then
  mirror=$(sh "$(dirname "$0")/../../tools/mirror.sh") ||
    { echo "skipped: Debian's mirror cannot be reached: apt's sources name none" >&2; exit 77; }
  mkdir -p "$root"
  /usr/lib/apt/apt-helper download-file "$mirror/dists/$suite/Release" "$1/package/release.$name" \
    > /dev/null 2>&1 || { echo "skipped: Debian's mirror cannot be reached" >&2; exit 77; }
  rm -rf "$root"
  debootstrap --variant=minbase --include=python3-minimal,python3-venv "$suite" "$root" "$mirror" \
    > "$1/package/debootstrap.$name.log" 2>&1 || { tail -n 5 "$1/package/debootstrap.$name.log" >&2; exit 1; }
  # The name servers and the trusted certificates of this machine.
  for file in /etc/resolv.conf /etc/ssl/certs/ca-certificates.crt; do
    [ ! -e "$file" ] || install -D -m 644 "$file" "$root$file"
  done
  touch "$root/made"
fi
if [ "$name" = root ] && found=$(dpkg-query --admindir="$root/var/lib/dpkg" -W -f '${Package}\n' | grep -xE 'g\+\+|libdnnl.*|libfmt.*'); then
  echo "in the minimal root is" $found >&2
  exit 1
fi
echo "$root"
