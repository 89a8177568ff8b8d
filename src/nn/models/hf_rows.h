#pragma once

namespace ds {

// The form of the rows of a batch: sequences, sequences with an input `mask` for every family, or
// documents one after another.
enum class HfRows { sequences, masked, documents };

// The form of a model's batches. padded: sequences or documents may be followed by padding rows. An
// input `counted` then tells nodes that aggregate over all rows (the router loss) which rows count.
struct HfBatch {
  HfBatch(HfRows of = HfRows::sequences, bool with_padding = false)
      : rows(of), padded(with_padding) {}
  HfRows rows;
  bool padded;
};

}  // namespace ds
