#pragma once
#include <cstdint>

#include "core/base/tier.h"
#include "core/program/program.h"

namespace ds {

// Places: persistent buffers one after the other (the same for every program with the same
// buffers), transient ones by best fit over their lifetimes in issue order. Sets offsets and
// Program::arenas.
struct OffsetOptions {
  int64_t alignment = 64;
  int64_t file_alignment =
      kFileBlock;  // of file extents and of host buffers that files touch, begin and size
  // A range that a copy or the host used last stays taken until that queue is done with the next
  // one in the same memory, so that who gets the range need not wait for the last use.
  bool late_reuse = false;
};
void assign_offsets(Program& program, const OffsetOptions& options);

// Whole-parameter elements of partitioned buckets live at each instruction (for reports and tests).
IdVector<InstrId, int64_t> live_parameters(const Program& program);
// Largest sum of live transient bytes of a tier over the program: no assignment of offsets can be
// smaller.
int64_t transient_lower_bound(const Program& program, Tier tier);

}  // namespace ds
