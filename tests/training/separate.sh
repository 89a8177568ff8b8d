#!/bin/sh
# Runs the tests of training on the separate device (make_config in support/models.h). Leaves out tests of delegate mode, most
# of which the CTest entry training.delegate_on_separate runs, tests of the ledger, which also cover shared memories, and tests
# of communicators made of callbacks, which the threads of this device cannot run. The short form runs every third test and also
# leaves out SameBits, Quantization and FolderBits; DS_LONG=1 runs them and every test.
# usage: separate.sh TEST_PROGRAM
set -eu
out="*Delegate*:Ledger.*:CallbackBits.*"
if [ -z "${DS_LONG:-}" ]; then
  out="$out:*SameBits*:Quantization.*:*FolderBits*"
  export GTEST_TOTAL_SHARDS=3 GTEST_SHARD_INDEX=0
fi
export DS_TEST_DEVICE=separate
exec "$1" --gtest_brief=1 --gtest_filter="-$out"
