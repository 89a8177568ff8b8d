#!/bin/sh
# Installs the wheel in a new virtual environment on a machine that has only Python. The package must train, run its command,
# connect its ranks and tokenize texts, and its plugin for GPUs must say in one line that there is no driver. Then runs
# installed.py in an environment of each installed CPython from 3.11 on.
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
images=$build/src/kernels/cuda  # compiled once for all builds of a test
[ -e "$images/step.fatbin" ] || images=
if ! sh "$source/tools/wheel.sh" "$work" "cmake.define.DS_WERROR=$werror" "cmake.define.DS_CUDA_BUILT=$images" > "$work/log" 2>&1; then
  ! grep -q 'No matching distribution found\|Failed to establish a new connection\|Temporary failure in name resolution' "$work/log" ||
    { echo "skipped: PyPI cannot be reached"; exit 77; }
  cat "$work/log"
  exit 1
fi
wheel=$(basename "$work"/libds-*.whl)
glibc=$(getconf GNU_LIBC_VERSION | tr -dc 0-9. | tr . _)
case $wheel in *-cp311-abi3-manylinux_"$glibc"_x86_64.whl) ;; *) echo "the wheel is named $wheel"; exit 1 ;; esac
rm -rf "$root/wheel"
mkdir "$root/wheel"
cp "$work/$wheel" "$source/examples/quickstart.py" "$here/installed.py" "$root/wheel"
[ ! -e "$build/lib/libds_cuda.so" ] || /usr/bin/python3 -m zipfile -l "$work/$wheel" | grep -q 'libds/lib/libds_cuda.so' ||
  { echo "the wheel has no plugin for GPUs, which the build has"; exit 1; }
cat > "$root/wheel/gpu.json" << END
{"device": "cuda", "train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
 "model": {"family": "gpt", "layers": 1, "hidden": 32, "heads": 2}, "data": {"paths": "installed.py", "heldout": 0},
 "run": {"sequence": 16, "steps": 2, "sample_tokens": 0}}
END
sh "$here/inside.sh" "$root" "
cd /wheel
python3 -m venv venv
venv/bin/pip install -q --no-index --disable-pip-version-check '$wheel'
venv/bin/python quickstart.py
venv/bin/libds env | head -n 1
venv/bin/libds tokenize --data installed.py --out text.tokens
[ ! -e venv/lib/python3.*/site-packages/libds/lib/libds_cuda.so ] || {
  venv/bin/libds env | grep '^CUDA .*there is no CUDA driver: libcuda.so.1'
  venv/bin/libds train --config gpu.json --dir gpu > gpu.log 2>&1
  [ \"\$(grep -c 'there is no CUDA driver' gpu.log)\" = 1 ]
}
venv/bin/libds launch -n 2 venv/bin/python installed.py
venv/bin/python installed.py
for file in py.typed bin/libds lowlevel.py ops.py; do ls venv/lib/python3.*/site-packages/libds/\$file > /dev/null; done
"
rm -rf "$root/wheel"
for python in $(PATH="$PATH:$(echo "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.*/bin | tr ' ' :)" && IFS=: && for folder in $PATH; do
  ls "$folder"/python3.1[1-9] 2> /dev/null || true; done); do
  version=$("$python" -c 'import sys; print(*sys.version_info[:2], sep=".")' 2> /dev/null) || continue
  [ ! -e "$work/$version" ] || continue
  "$python" -m venv "$work/$version" 2> /dev/null || continue
  "$work/$version/bin/pip" install -q --no-index --disable-pip-version-check "$work/$wheel"
  "$work/$version/bin/python" "$here/installed.py" | sed "s/^/CPython $version: /"
done
