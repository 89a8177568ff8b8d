#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "text/tokenizers/section.h"

namespace ds::text {

// The "decoder" of a tokenizer.json. It turns the spellings of tokens into the parts of a text, in
// order. Types: Sequence ByteLevel Replace ByteFallback Fuse Strip Metaspace BPEDecoder WordPiece;
// null puts a space between tokens.
using Decoder = std::function<std::vector<std::string>(std::vector<std::string>)>;
// Reads a decoder. `where` is file and key, for messages.
Decoder read_decoder(const Json* json, const std::string& where);

// Returns whether a decoder contains a ByteFallback.
bool has_byte_fallback(const Json* json);
// Returns the byte that a token "<0xNN>" represents; nullopt for any other token.
std::optional<char> fallback_byte(std::string_view token);

}  // namespace ds::text
