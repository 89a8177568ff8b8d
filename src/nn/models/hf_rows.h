#pragma once

namespace ds {

// What the rows of a batch are: sequences; these with an input `mask` whatever the family; or
// documents one behind the other.
enum class HfRows { sequences, masked, documents };

// Batches of a model. padded: rows may be padding behind a sequence or a document, and an input
// `counted` tells what computes over all rows, the loss of routers, which ones count.
struct HfBatch {
  HfBatch(HfRows of = HfRows::sequences, bool with_padding = false)
      : rows(of), padded(with_padding) {}
  HfRows rows;
  bool padded;
};

}  // namespace ds
