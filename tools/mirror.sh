#!/bin/sh
# Prints the mirror of Debian that apt's sources name, in either file format; fails if they name none.
mirror=$(sed -n 's/^URIs: *\([^ ]*\/debian\)\/* *$/\1/p; s/^deb \(\[[^]]*\] \)*\([^ ]*\/debian\)\/* .*/\2/p' /etc/apt/sources.list \
  /etc/apt/sources.list.d/* 2> /dev/null | head -n 1)
[ -n "$mirror" ] || { echo "apt's sources name no mirror of Debian" >&2; exit 1; }
echo "$mirror"
