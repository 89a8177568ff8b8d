#!/bin/sh
# Runs a shell program inside a root of Debian, with /proc, in namespaces of its own.
# usage: inside.sh ROOT PROGRAM
set -eu
exec unshare --mount --pid --fork sh -euc 'mount -t proc proc "$1/proc"; exec chroot "$1" /bin/sh -euc "$2"' sh "$1" "$2"
