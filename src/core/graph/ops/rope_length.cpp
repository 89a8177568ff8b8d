#include "core/graph/ops/rope_length.h"

#include <algorithm>

namespace ds {

bool depends_on_length(const Attrs& rope) {
  return rope.text_or("scaling", "none") == "dynamic" || rope.has("long_factors");
}

bool same_rotations(const Attrs& rope, int64_t length, int64_t other) {
  if (!depends_on_length(rope)) return true;
  int64_t original = rope.integer("original");
  if (rope.has("long_factors")) return (length > original) == (other > original);
  return std::max(length, original) == std::max(other, original);
}

}  // namespace ds
