#!/bin/sh
# The wheel in a fresh virtual environment of a machine that has only Python: it trains, its command runs, its ranks meet.
# usage: wheel.sh SOURCE BUILD
set -eu
source=$1
build=$2
here=$source/tests/package
root=$(sh "$here/root.sh" "$build") || exit $?
work=$build/package/wheel
rm -rf "$work"
mkdir -p "$work"
werror=$(sed -n 's/^DS_WERROR:BOOL=//p' "$build/CMakeCache.txt")
if ! sh "$source/tools/wheel.sh" "$work" "cmake.define.DS_WERROR=$werror" > "$work/log" 2>&1; then
  ! grep -q 'No matching distribution found\|Failed to establish a new connection\|Temporary failure in name resolution' "$work/log" ||
    { echo "skipped: PyPI cannot be reached"; exit 77; }
  cat "$work/log"
  exit 1
fi
wheel=$(basename "$work"/libds-*.whl)
case $wheel in *-cp311-cp311-manylinux_2_36_x86_64.whl) ;; *) echo "the wheel is named $wheel"; exit 1 ;; esac
rm -rf "$root/wheel"
mkdir "$root/wheel"
cp "$work/$wheel" "$source/examples/quickstart.py" "$here/installed.py" "$root/wheel"
sh "$here/inside.sh" "$root" "
cd /wheel
python3 -m venv venv
venv/bin/pip install -q --no-index --disable-pip-version-check '$wheel'
venv/bin/python quickstart.py
venv/bin/libds env | head -n 1
venv/bin/libds launch -n 2 venv/bin/python installed.py
venv/bin/python installed.py
for file in py.typed bin/libds lowlevel.py ops.py; do ls venv/lib/python3.11/site-packages/libds/\$file > /dev/null; done
"
rm -rf "$root/wheel"
