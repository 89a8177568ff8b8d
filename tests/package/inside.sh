#!/bin/sh
# Runs a shell program inside a root of Debian, with /proc, in new namespaces. If SOURCE is given, it is mounted at /src, with
# the folders build and .cache of the root, and the devices of this machine are available.
# usage: inside.sh ROOT PROGRAM [SOURCE]
set -eu
exec unshare --mount --pid --fork sh -euc '
mount -t proc proc "$1/proc"
if [ -n "$3" ]; then
  mkdir -p "$3/build" "$3/.cache" "$1/src" "$1/work/build" "$1/work/cache"
  mount --rbind /dev "$1/dev"
  mount --rbind /sys "$1/sys"
  mount --bind "$3" "$1/src"
  mount --bind "$1/work/build" "$1/src/build"
  mount --bind "$1/work/cache" "$1/src/.cache"
fi
exec chroot "$1" /bin/sh -euc "$2"' sh "$1" "$2" "${3:-}"
