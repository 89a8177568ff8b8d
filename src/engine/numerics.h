#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ds {

// What the bits of a run depend on: parts, each a name and a value, in the order in which they are
// shown. As text "name value name value ...", so names and values have no spaces; only the last
// value, that of "quantized", is the rest of the line.
using NumericsParts = std::vector<std::pair<std::string, std::string>>;

std::string numerics_text(const NumericsParts& parts);

// A key and where it is: "there", "on rank 3".
struct PlacedNumerics {
  std::string_view key, place;
};

// The parts in which two keys differ, with both values: "isa avx2 there, avx512 here; onednn none
// there, 3.1 here". "" for equal ones. The first may come from another version, with other parts.
std::string numerics_difference(PlacedNumerics first, PlacedNumerics second);

}  // namespace ds
