#pragma once
#include <cstdint>

#include "core/graph/graph.h"

namespace ds {

// Replaces `cross_entropy` of a `linear` without bias, its weight stored [words, width], by
// `linear_cross_entropy`, where there are at least `fewest_words` and no other node reads the
// logits. Logits that are an output of the graph stay one, made by programs that ask for them. With
// `kept`, the backward part reads the logits of the forward part, whose rows are aligned; otherwise
// it makes them again. Before autodiff. Returns how many it replaced.
int fuse_head(Graph& graph, int64_t fewest_words, bool kept = false);

}  // namespace ds
