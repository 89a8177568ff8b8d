#pragma once
#include <cstdint>

#include "core/program/program.h"

namespace ds {

// Gives every instruction operands it can reach. ZeRO names state where it lives; this pass inserts
// the way there: load (file -> host), fetch (host -> device), store (device -> host), save (host ->
// file) around each use, through transient buffers. Update instructions whose state is not on the
// device move to the host queue and run there, and so does the decision that reads its norms.
//
// emulate false: device memory is host memory (a CPU), so fetch and store lower to nothing and only
// files move. emulate true: the tiers are separate memories and every crossing is a copy; the
// program is marked so, and `verify` holds every queue to its memory. The step's scalars, which a
// decision writes and all updates read, have one copy on the host from their first use there on.
//
// A file buffer that is written whole and used again later in the program stays in its host slot
// from then on, as long as all such slots together take at most `resident_bytes`: its later uses
// need no load, and of its writes only the last is saved, or every one where the program may be
// given up half-way
// (`save_every_write`). The instruction after the one that wrote a buffer needs no load either.
//
// File operands start on multiples of `file_alignment`; a read that does not is widened to whole
// blocks, a write that does not is an internal error (sub-groups are cut on blocks).
struct TierOptions {
  bool emulate = false;
  int64_t file_alignment = kFileBlock;
  int64_t resident_bytes = 0;
  bool save_every_write = false;
};
void insert_tier_moves(Program& program, const TierOptions& options);

}  // namespace ds
