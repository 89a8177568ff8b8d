#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "data/tokenizers/section.h"

namespace ds {

// A tokenizer.json's "decoder": the spellings of tokens to the parts of a text, in order; joined,
// they are the text. Types: Sequence ByteLevel Replace ByteFallback Fuse Strip Metaspace BPEDecoder
// WordPiece; null puts a space between tokens.
using Decoder = std::function<std::vector<std::string>(std::vector<std::string>)>;
Decoder read_decoder(const Json* json, const std::string& where);

// Whether a decoder of this JSON has a ByteFallback, and the byte that "<0xNN>" stands for there.
bool has_byte_fallback(const Json* json);
std::optional<char> fallback_byte(std::string_view token);

}  // namespace ds
