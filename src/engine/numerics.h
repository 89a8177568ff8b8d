#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ds {

// The facts that the bits of a run depend on: name and value of each, in the order in which they
// are shown. The text is "name value name value ...", so names and values have no spaces; only the
// last value, that of "quantized", extends to the end of the line.
using NumericsParts = std::vector<std::pair<std::string, std::string>>;

std::string numerics_text(const NumericsParts& parts);

// A numerics key and where it was computed: "there", "on rank 3".
struct PlacedNumerics {
  std::string_view key, place;
};

// Returns the parts in which two keys differ, with both values: "isa avx2 there, avx512 here;
// onednn none there, 3.1 here". Returns "" for equal keys. The first may come from another version,
// with other parts.
std::string numerics_difference(PlacedNumerics first, PlacedNumerics second);

}  // namespace ds
