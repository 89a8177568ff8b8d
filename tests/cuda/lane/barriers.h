#pragma once
#include <compare>
#include <string>
#include <vector>

namespace lane {

// A __syncthreads of an entry: where it is written, in a file that the entry may share with others.
struct Barrier {
  std::string entry, file;
  int line = 0;
  auto operator<=>(const Barrier&) const = default;
};

// Those that launches have met since the last forget, in order.
std::vector<Barrier> met_barriers();
void forget_barriers();
// From here on launches pass this one as if it were not written; a default one restores them all.
void drop_barrier(const Barrier& barrier);

}  // namespace lane
