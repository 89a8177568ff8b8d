#!/bin/sh
# usage: separate.sh TEST_PROGRAM
# Runs the tests of training on the separate device (make_config in support/models.h). It leaves out delegate mode, whose
# tests choose their device themselves, the ledger, which also counts for shared memories, and comms of callbacks, which
# this device's threads cannot run. The short form takes every third test and leaves out the matrix of same bits;
# DS_LONG=1 takes all.
set -eu
out="*Delegate*:Ledger.*:CallbackBits.*"
if [ -z "${DS_LONG:-}" ]; then
  out="$out:*SameBits*:Quantization.*:*FolderBits*"
  export GTEST_TOTAL_SHARDS=3 GTEST_SHARD_INDEX=0
fi
export DS_TEST_DEVICE=separate
exec "$1" --gtest_brief=1 --gtest_filter="-$out"
