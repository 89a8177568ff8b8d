#pragma once
#include <cstdint>

#include "core/graph/graph.h"

namespace ds {

struct DecodeOptions {
  int64_t positions = 1;  // rows of every cache: tokens of the longest text
  int64_t chunk = 1;      // bound of n: tokens fed at once
  // Rotations that depend on the length of a text (depends_on_length()) go by kDecodeLength, as in
  // a forward pass over just that text; otherwise they stay those of sequences of the forward
  // graph's length.
  bool by_length = false;
};

// Inputs of a decode graph. The others are those of the forward graph that it still needs, and
// caches.
inline constexpr const char* kTokensInput = "tokens";
inline constexpr const char* kDecodePositions =
    "decode.positions";  // i32[n]: row r's place in the text
inline constexpr const char* kDecodeLength =
    "decode.length";  // i32[1]: tokens of the text, these included

// The graph that continues one text: `forward`'s output 1, logits T[n,V], becomes output 0, T[1,V]
// of the last row fed. Every causal attention becomes `cached_attention` with a cache input of its
// own, named after it (NAME.cache); rope goes by kDecodePositions, and so does position, as an
// embedding; only the last row goes through the head. The input kDecodeLength is there when a rope
// needs it. Dropout falls away, and so do masks that are inputs: one text has no padding.
// Parameters stay what they are, all of them and in order. Call before set_precision() and
// differentiate(). Throws DS_ERROR_UNSUPPORTED naming the value when rows see later rows, or are
// mixed by anything but attention.
Graph decode_graph(const Graph& forward, const DecodeOptions& options);

}  // namespace ds
