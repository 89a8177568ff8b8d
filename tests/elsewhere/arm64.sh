#!/bin/sh
# Cross-compiles libds for arm64 in a root of Debian 12 with the libraries of that architecture. Under qemu-user it runs
# the kernel conformance and the C examples as tests, then a training run of two ranks, which fails if the model has not
# learned.
# usage: arm64.sh SOURCE BUILD PACKAGE...     PACKAGE: a package that the build needs; libraries are installed for arm64
set -eu
source=$1
build=$2
shift 2
root=$(sh "$source/tests/package/root.sh" "$build" arm64 bookworm) || exit $?
packages="g++-aarch64-linux-gnu qemu-user-static"
for package in "$@"; do
  case $package in
    g++) ;;
    libopenmpi-dev) ;;  # its compiler wrappers are arm64 programs, which CMake would run
    libcli11-dev) packages="$packages $package" ;;  # headers for every architecture
    lib*|ocl-icd*|zlib*) packages="$packages $package:arm64" ;;
    *) packages="$packages $package" ;;
  esac
done
cat > "$root/arm64.sh" << 'END'
set -eu
export DEBIAN_FRONTEND=noninteractive CCACHE_BASEDIR=/src CCACHE_NOHASHDIR=1
dpkg --add-architecture arm64
apt-get -q update
apt-get -q install -y --no-install-recommends "$@"
cd /src
[ -f build/arm64/build.ninja ] || cmake --preset arm64
ninja -C build/arm64 libds examples/all test_conformance
python3 tools/run_tests.py build/arm64 -j2 -R '^(conformance|examples)\.'
libds='qemu-aarch64-static build/arm64/bin/libds'
rm -rf build/arm64/run
$libds launch -n 2 $libds train --config examples/nvme.json --data docs/concepts --dir build/arm64/run --set run.steps=60 \
  --set 'run.bars=["unigram"]'
END
exec sh "$source/tests/package/inside.sh" "$root" "sh /arm64.sh $packages" "$source"
