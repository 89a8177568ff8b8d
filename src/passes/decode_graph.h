#pragma once
#include <cstdint>

#include "core/graph/graph.h"

namespace ds {

struct DecodeOptions {
  // The number of tokens of the longest text, for which every cache has room.
  int64_t positions = 1;
  // The bound of n: the largest number of tokens that are fed at once.
  int64_t chunk = 1;
  // Whether rotations that depend on the length of a text (depends_on_length()) read kDecodeLength,
  // as in a forward pass over that text alone. If false, they are those for the sequence length of
  // the forward graph.
  bool by_length = false;
};

// Names of inputs of a decode graph. Its other inputs are caches, and inputs of the forward graph
// that are still needed.
inline constexpr const char* kTokensInput = "tokens";
// An input i32[n]: the position of each row in the text.
inline constexpr const char* kDecodePositions = "decode.positions";
// An input i32[1]: the number of tokens of the text, including those that are fed now.
inline constexpr const char* kDecodeLength = "decode.length";

// Returns the graph that continues one text. Output 1 of `forward`, the logits T[n,V], becomes
// output 0, the logits T[1,V] of the last row fed. Every causal attention becomes a
// `cached_attention` with its own cache, an input called NAME.cache. rope and position read
// kDecodePositions; position becomes an embedding and a sum. Only the last row goes through the
// head. The input kDecodeLength exists if a rope needs it. Dropout and layerdrop are removed, and
// so are masks that are inputs, since a single text has no padding. All parameters stay, in their
// order. Call it before set_precision() and differentiate(). Throws DS_ERROR_UNSUPPORTED, naming
// the value, if rows see later rows or if anything but attention mixes rows.
Graph decode_graph(const Graph& forward, const DecodeOptions& options);

}  // namespace ds
