#pragma once
#include <compare>
#include <string>
#include <vector>

namespace lane {

// A __syncthreads of an entry, identified by its line in a file, which several entries may share.
struct Barrier {
  std::string entry, file;
  int line = 0;
  auto operator<=>(const Barrier&) const = default;
};

// Returns, in order, the barriers that launches have reached since the last forget_barriers().
std::vector<Barrier> met_barriers();
void forget_barriers();
// Makes all later launches skip this barrier, or no barrier if `barrier` is default-constructed.
void drop_barrier(const Barrier& barrier);

}  // namespace lane
