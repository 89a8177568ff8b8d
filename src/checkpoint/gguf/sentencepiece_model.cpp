// Reads the few fields of a sentencepiece model that a conversion needs. The library of
// sentencepiece is not used, because it belongs to the plugin for text.
// Source: sentencepiece_model.proto of github.com/google/sentencepiece, and the encoding of
// protocol buffers: fields of a number and a wire type. Wire type 0 is a varint, 1 and 5 are 8 and
// 4 bytes, and 2 is a length and as many bytes.
#include "checkpoint/gguf/sentencepiece_model.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <string_view>

#include "core/base/content_kind.h"
#include "core/base/error.h"
#include "core/base/utf8.h"
#include "io/file.h"
#include "io/file_kind.h"

namespace ds {
namespace {

// Numbers of fields in the message ModelProto and in the messages inside it.
constexpr uint64_t kPieces = 1, kTrainer = 2, kNormalizer = 3;
constexpr uint64_t kPieceText = 1, kPieceScore = 2, kPieceType = 3;
constexpr uint64_t kTrainerType = 3, kNormalizerPrefix = 3;
// The model type BPE.
constexpr uint64_t kBpe = 2;

// One field of a message. `number` is the value of a varint, or the bits of 4 or 8 bytes.
struct ProtoField {
  uint64_t id = 0, number = 0;
  std::string_view bytes;
};

[[noreturn]] void raise_damaged() { raise(DS_ERROR_CORRUPT, "not a whole sentencepiece model"); }

uint64_t take_varint(std::string_view& rest) {
  uint64_t out = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (rest.empty()) raise_damaged();
    const auto byte = static_cast<uint8_t>(rest[0]);
    rest.remove_prefix(1);
    out |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return out;
  }
  raise_damaged();
}

std::string_view take_bytes(std::string_view& rest, uint64_t count) {
  if (count > rest.size()) raise_damaged();
  const std::string_view out = rest.substr(0, count);
  rest.remove_prefix(count);
  return out;
}

ProtoField take_field(std::string_view& rest) {
  const uint64_t tag = take_varint(rest), wire = tag & 7;
  ProtoField field{tag >> 3};
  if (wire == 0) {
    field.number = take_varint(rest);
  } else if (wire == 1 || wire == 5) {
    const std::string_view bytes = take_bytes(rest, wire == 1 ? 8 : 4);
    std::memcpy(&field.number, bytes.data(), bytes.size());
  } else if (wire == 2) {
    field.bytes = take_bytes(rest, take_varint(rest));
  } else {
    raise_damaged();
  }
  return field;
}

void for_each_field(std::string_view message, const std::function<void(const ProtoField&)>& use) {
  while (!message.empty()) use(take_field(message));
}

void add_piece(std::string_view message, SentencePieceModel& out) {
  std::string text;
  float score = 0;
  uint64_t kind = 1;
  for_each_field(message, [&](const ProtoField& field) {
    if (field.id == kPieceText) text = field.bytes;
    if (field.id == kPieceScore) score = std::bit_cast<float>(static_cast<uint32_t>(field.number));
    if (field.id == kPieceType) kind = field.number;
  });
  if (kind < 1 || kind > 6 || !is_utf8(text)) raise_damaged();
  out.pieces.push_back(std::move(text));
  out.scores.push_back(score);
  out.kinds.push_back(static_cast<TokenKind>(kind));
}

SentencePieceModel parse_model(std::string_view message) {
  SentencePieceModel out;
  for_each_field(message, [&](const ProtoField& field) {
    if (field.id == kPieces) add_piece(field.bytes, out);
    if (field.id == kTrainer)
      for_each_field(field.bytes, [&](const ProtoField& part) {
        if (part.id == kTrainerType) out.is_bpe = part.number == kBpe;
      });
    if (field.id == kNormalizer)
      for_each_field(field.bytes, [&](const ProtoField& part) {
        if (part.id == kNormalizerPrefix) out.add_dummy_prefix = part.number != 0;
      });
  });
  if (out.pieces.empty()) raise_damaged();
  return out;
}

}  // namespace

SentencePieceModel read_sentencepiece_model(const std::string& path) {
  const std::string message = read_file(path);
  try {
    return parse_model(message);
  } catch (const Error& fault) {
    raise_fault(path, fault, Wanted::sentencepiece);
  }
}

}  // namespace ds
