#!/bin/sh
# usage: separate.sh TEST_PROGRAM: the tests of training on the separate device (make_config in support/models.h).
# Left out: delegate mode, whose tests choose their device themselves, and the ledger, which also counts for shared
# memories. DS_LONG=1 takes the matrix of same bits, too.
set -eu
out="*Delegate*:Ledger.*"
[ -n "${DS_LONG:-}" ] || out="$out:*SameBits*:Quantization.*:*FolderBits*"
export DS_TEST_DEVICE=separate
exec "$1" --gtest_brief=1 --gtest_filter="-$out"
