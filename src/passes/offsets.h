#pragma once
#include <cstdint>

#include "core/base/tier.h"
#include "core/program/program.h"

namespace ds {

// Options of assign_offsets().
struct OffsetOptions {
  int64_t alignment = 64;
  // Alignment in bytes of the offset and size of file extents and of host buffers that files
  // access.
  int64_t file_alignment = kFileBlock;
  // A range last used by a copy or by the host queue stays in use until that queue has finished its
  // next instruction in the same memory. The next owner of the range then need not wait for that
  // last use.
  bool late_reuse = false;
};
// Assigns every buffer an offset: persistent buffers one after another, the same in every program
// with the same persistent buffers, and transient ones by best fit over their lifetimes in issue
// order. Sets Buffer::offset and Program::arenas.
void assign_offsets(Program& program, const OffsetOptions& options);

// Returns, for each instruction, how many elements of whole parameters of partitioned buckets are
// live. Used by hoist, reports and tests.
IdVector<InstrId, int64_t> live_parameters(const Program& program);
// Returns the largest sum of live transient bytes of a tier over the program, which no assignment
// of offsets can undercut.
int64_t transient_lower_bound(const Program& program, Tier tier);

}  // namespace ds
