#pragma once

namespace ds {

// What the rows of a batch are: sequences; these with an input `mask` whatever the family; or documents one
// behind the other.
enum class HfRows { sequences, masked, documents };

}  // namespace ds
