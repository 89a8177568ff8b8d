#!/bin/sh
# `libds env` reports CUDA on a machine in one line. An engine on a missing device is refused with this line, and the CPU
# trains. The command also trains on the driver in software.
# usage: absent.sh LIBDS PLUGIN FAKE_DRIVER FAKE_BLAS FAKE_NCCL
fake_driver=$3
plugin=$2
fake_blas=$4
fake_nccl=$5
. "$(dirname "$0")/../../cli/begin.sh"
make_text 400
tiny="$here/../../cli/tiny.json"

for needed in $(readelf -d "$plugin" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
  case $needed in libcu* | libnv* | libnccl*) fail "libds_cuda.so needs $needed" ;; esac
done

# says LINE NAME=VALUE...: checks the line of `libds env` about CUDA in this environment.
says() {
  line=$1
  shift
  env "$@" "$libds" env > out
  grep -q "^CUDA  *.*$line" out || fail "env with $*: $(grep ^CUDA out)"
}
says "there is no CUDA driver: /nowhere/libcuda.so: cannot open shared object file" DS_CUDA_DRIVER=/nowhere/libcuda.so
says "is not a CUDA driver: it reports no version" "DS_CUDA_DRIVER=$fake_blas"
says "supports CUDA 12.4, and this plugin needs 13.0 or later" "DS_CUDA_DRIVER=$fake_driver" DS_FAKE_CUDA_VERSION=12040
says "the driver has no device" "DS_CUDA_DRIVER=$fake_driver" DS_FAKE_CUDA_DEVICES=0
says "of version 13.0 does not start: no CUDA-capable device is detected" "DS_CUDA_DRIVER=$fake_driver" DS_FAKE_CUDA_INIT=100
says "fake GPU is of architecture sm_75, and this plugin needs sm_80 or later" "DS_CUDA_DRIVER=$fake_driver" DS_FAKE_CUDA_ARCH=75
export DS_NCCL="$fake_nccl"
says "13.0, cuda:0 fake GPU (sm_90), 1024 MiB, 1024 MiB free; ranks on several are linked by NCCL 2.28.9" "DS_CUDA_DRIVER=$fake_driver"
for unlinked in "there is no NCCL: /nowhere/libnccl.so: cannot open shared object file|DS_NCCL=/nowhere/libnccl.so" \
  "is not NCCL: it reports no version|DS_NCCL=$fake_blas" \
  "is of version 2.13.4, and this plugin needs 2.14.0 or later|DS_FAKE_NCCL_VERSION=21304"; do
  says "free; ranks on several are not linked: .*${unlinked%|*}" "DS_CUDA_DRIVER=$fake_driver" "${unlinked#*|}"
done

sed 's|"optimizer"|"device": "cuda:0", "optimizer"|' "$tiny" > cuda.json
train() { "$libds" train --config "$1" --data text.txt --steps 2 --quiet --dir "$2" > out 2> err; }
export DS_CUDA_DRIVER=/nowhere/libcuda.so
train "$tiny" cpu || fail "the CPU does not train: $(cat err)"
losses() { cut -d , -f 2 "$1/metrics.csv"; }
train cuda.json none || fail "no training without a driver: $(cat err)"
[ "$(grep -c "device 'cuda:0': there is no CUDA driver: /nowhere/libcuda.so.*; the run goes on with the CPU" err)" = 1 ] || fail "$(cat err)"
[ "$(losses none)" = "$(losses cpu)" ] || fail "the CPU in place of a GPU has other losses: $(losses none)"
sed 's|"run": {|"run": {"device_fallback": false, |' cuda.json > strict.json
! train strict.json strict || fail "trained without a driver"
[ "$(grep -c "device 'cuda:0': there is no CUDA driver: /nowhere/libcuda.so" err)" = 1 ] || fail "$(cat err)"

export DS_CUDA_DRIVER="$fake_driver" DS_CUDA_BLAS="$fake_blas"
train cuda.json fake || fail "no training on the fake driver: $(cat err)"
grep -q 'step *2/2' out || fail "$(cat out)"
sed 's|cuda:0|cuda:3|' strict.json > other.json
! train other.json other || fail "trained on a device that is not there"
grep -q "device 'cuda:3': there is no such device" err || fail "$(cat err)"
export DS_FAKE_CUDA_MEMORY
DS_FAKE_CUDA_MEMORY=30000000
! train cuda.json small || fail "trained in too little memory"
[ "$(grep -c "device 'cuda:0'.* larger than the device's memory, 30000000" err)" = 1 ] || fail "$(cat err)"
DS_FAKE_CUDA_MEMORY=36000000
! train cuda.json some || fail "trained in too little memory that is free"
[ "$(grep -c "device 'cuda:0'.* free" err)" = 1 ] || fail "$(cat err)"
