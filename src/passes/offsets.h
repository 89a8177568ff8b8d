#pragma once
#include <cstdint>

#include "core/base/tier.h"
#include "core/program/program.h"

namespace ds {

// Options of assign_offsets().
struct OffsetOptions {
  int64_t alignment = 64;
  // The alignment, in bytes, of offsets and sizes of file extents and of buffers that file
  // transfers access.
  int64_t file_alignment = kFileBlock;
  // Whether a range that was last used by a copy or by the host queue stays in use until that
  // queue's next last use of a range in the same tier, or until the segment ends. The next owner of
  // the range then rarely has to wait.
  bool late_reuse = false;
};
// Assigns an offset to every persistent buffer and to every transient buffer that an instruction
// accesses. Persistent buffers are placed one after another, the same in every program with the
// same persistent buffers. Transient buffers are placed by best fit over their lifetimes in issue
// order. Sets Buffer::offset and Program::arenas.
void assign_offsets(Program& program, const OffsetOptions& options);

// Returns, for each instruction, how many elements of whole parameters of partitioned buckets are
// live. Used by hoist, reports and tests.
IdVector<InstrId, int64_t> live_parameters(const Program& program);
// Returns the largest sum of live transient bytes of a tier over the program, which is a lower
// bound for the size of any assignment of offsets.
int64_t transient_lower_bound(const Program& program, Tier tier);

}  // namespace ds
