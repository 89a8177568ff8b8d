#pragma once
#include <cstdint>

#include "core/program/program.h"

namespace ds {

// The pass that gives every instruction operands in memory that it can access. ZeRO names state in
// its home tier; this pass inserts transfers: load (file -> host), fetch (host -> device), store
// (device -> host) and save (host -> file) around each use, through transient buffers. Update
// instructions whose state is not on the device move to the host queue and run there, and so does a
// decision that reads their norms.
//
// If `emulate` is false, device memory is host memory (a CPU), so there are no fetches and stores,
// and only files move. If it is true, the tiers are separate memories and every crossing is a copy;
// Program::separate is set, and `verify` checks that every queue stays in its memory. The step's
// scalars, which a decision writes and all updates read, have one copy on the host from their first
// use there on.
//
// A file buffer that is written whole and used again later in the program stays in its host slot
// from then on, as long as all such slots together take at most `resident_bytes`. Its later uses
// need no load, and only its last write is saved, or every write if a run of the program may be
// abandoned midway (`save_every_write`). An instruction that reads a buffer directly after a write
// of the whole buffer needs no load, either.
//
// File operands start on multiples of `file_alignment`. A read that starts elsewhere is widened to
// begin at such a multiple; a write that starts elsewhere is an internal error, because sub-groups
// are cut at multiples of a block.
struct TierOptions {
  bool emulate = false;
  int64_t file_alignment = kFileBlock;
  int64_t resident_bytes = 0;
  bool save_every_write = false;
};
// Inserts the transfers into the program.
void insert_tier_moves(Program& program, const TierOptions& options);

}  // namespace ds
