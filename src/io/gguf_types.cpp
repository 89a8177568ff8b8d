// Expands the blocks of GGUF's element types.
//
// A block of the older types (Q4_0 to Q8_0) holds 32 elements q with one scale d, and with a
// minimum m in Q4_1 and Q5_1: the values are d * q + m. A block of the K types holds 256 elements
// in groups of 16 or 32. A group has a small integer scale and, in Q2_K, Q4_K and Q5_K, a small
// integer minimum; the block has an f16 unit for each of the two:
//   value = (d * scale) * q - (dmin * minimum).
// The bits of an element may be spread over two arrays of the block, low bits in one and high bits
// in the other. Elements whose bits share a byte are 16, 32 or 64 elements apart.
#include "io/gguf_types.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/half.h"

namespace ds {
namespace {

static_assert(std::endian::native == std::endian::little);

// Elements in a block of the older types, and in a block of the K types.
constexpr int kSmall = 32, kLarge = 256;

int byte_at(const std::byte* data, int i) { return std::to_integer<int>(data[i]); }
int signed_at(const std::byte* data, int i) {
  return static_cast<int8_t>(std::to_integer<uint8_t>(data[i]));
}
float half_at(const std::byte* data, int i) {
  uint16_t bits = 0;
  std::memcpy(&bits, data + i, sizeof(bits));
  return widen_half(bits);
}

void expand_f32(const std::byte* block, float* out) { std::memcpy(out, block, sizeof(float)); }
void expand_f16(const std::byte* block, float* out) { widen(DS_DTYPE_F16, block, 1, out); }
void expand_bf16(const std::byte* block, float* out) { widen(DS_DTYPE_BF16, block, 1, out); }

// Returns 4 bits of element i of an older type: the first 16 elements are the low halves of the 16
// bytes.
int nibble(const std::byte* codes, int i) { return byte_at(codes, i % 16) >> (i / 16 * 4) & 15; }
// Returns the fifth bit of element i, shifted to its place.
int fifth_bit(const std::byte* bits, int i) { return (byte_at(bits, i / 8) >> (i % 8) & 1) << 4; }

void expand_q4_0(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  for (int i = 0; i < kSmall; ++i) out[i] = d * static_cast<float>(nibble(block + 2, i) - 8);
}

void expand_q4_1(const std::byte* block, float* out) {
  const float d = half_at(block, 0), m = half_at(block, 2);
  for (int i = 0; i < kSmall; ++i) out[i] = d * static_cast<float>(nibble(block + 4, i)) + m;
}

void expand_q5_0(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  for (int i = 0; i < kSmall; ++i) {
    const int q = nibble(block + 6, i) | fifth_bit(block + 2, i);
    out[i] = d * static_cast<float>(q - 16);
  }
}

void expand_q5_1(const std::byte* block, float* out) {
  const float d = half_at(block, 0), m = half_at(block, 2);
  for (int i = 0; i < kSmall; ++i) {
    const int q = nibble(block + 8, i) | fifth_bit(block + 4, i);
    out[i] = d * static_cast<float>(q) + m;
  }
}

void expand_q8_0(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  for (int i = 0; i < kSmall; ++i) out[i] = d * static_cast<float>(signed_at(block + 2, i));
}

// Returns 2 bits of element i of a K type: each half of the block has 32 bytes, and each byte holds
// four elements that are 32 apart.
int two_bits(const std::byte* codes, int i) {
  return byte_at(codes, i / 128 * 32 + i % 32) >> (i % 128 / 32 * 2) & 3;
}
// Returns the bit of element i in an array of 32 bytes: each byte holds eight elements that are 32
// apart.
int one_bit(const std::byte* bits, int i) { return byte_at(bits, i % 32) >> (i / 32) & 1; }

void expand_q2_k(const std::byte* block, float* out) {
  const std::byte *scales = block, *codes = block + 16;
  const float d = half_at(block, 80), dmin = half_at(block, 82);
  for (int i = 0; i < kLarge; ++i) {
    const int pair = byte_at(scales, i / 16);
    const float scale = d * static_cast<float>(pair & 15);
    const float minimum = dmin * static_cast<float>(pair >> 4);
    out[i] = scale * static_cast<float>(two_bits(codes, i)) - minimum;
  }
}

// Twelve bytes hold 16 scales of 6 bits: the low four bits of scales g and g + 8 share byte g, and
// the high two bits of scales g, g + 4, g + 8 and g + 12 share byte 8 + g. A set high bit of an
// element means that 4 is not subtracted.
void expand_q3_k(const std::byte* block, float* out) {
  const std::byte *high = block, *codes = block + 32, *scales = block + 96;
  const float d = half_at(block, 108);
  for (int i = 0; i < kLarge; ++i) {
    const int g = i / 16;
    const int low = byte_at(scales, g % 8) >> (g / 8 * 4) & 15;
    const int scale = (low | (byte_at(scales, 8 + g % 4) >> (g / 4 * 2) & 3) << 4) - 32;
    const int q = two_bits(codes, i) - (one_bit(high, i) == 1 ? 0 : 4);
    out[i] = d * static_cast<float>(scale) * static_cast<float>(q);
  }
}

// The scale and the minimum of a group, of 6 bits each.
struct GroupScale {
  int scale, minimum;
};
// Reads group g of 8 from twelve bytes. The first eight bytes hold the scales and minima of groups
// 0 to 3 in their low six bits, and the high two bits of groups 4 to 7 above them. The last four
// bytes hold the low four bits of groups 4 to 7.
GroupScale group_scale(const std::byte* scales, int g) {
  if (g < 4) return {byte_at(scales, g) & 63, byte_at(scales, g + 4) & 63};
  const int low = byte_at(scales, g + 4);
  return {(low & 15) | (byte_at(scales, g - 4) >> 6 << 4),
          (low >> 4) | (byte_at(scales, g) >> 6 << 4)};
}

// Returns 4 bits of element i of Q4_K or Q5_K: each byte holds two elements that are 32 apart.
int large_nibble(const std::byte* codes, int i) {
  return byte_at(codes, i / 64 * 32 + i % 32) >> (i % 64 / 32 * 4) & 15;
}

// Expands groups of 32 elements that have a scale and a minimum. code(i) returns element i.
template <typename Code>
void expand_groups(const std::byte* block, float* out, const Code& code) {
  const float d = half_at(block, 0), dmin = half_at(block, 2);
  for (int g = 0; g < 8; ++g) {
    const GroupScale group = group_scale(block + 4, g);
    const float scale = d * static_cast<float>(group.scale);
    const float minimum = dmin * static_cast<float>(group.minimum);
    for (int i = 32 * g; i < 32 * (g + 1); ++i)
      out[i] = scale * static_cast<float>(code(i)) - minimum;
  }
}

void expand_q4_k(const std::byte* block, float* out) {
  expand_groups(block, out, [&](int i) { return large_nibble(block + 16, i); });
}

void expand_q5_k(const std::byte* block, float* out) {
  expand_groups(block, out,
                [&](int i) { return large_nibble(block + 48, i) | one_bit(block + 16, i) << 4; });
}

void expand_q6_k(const std::byte* block, float* out) {
  const std::byte *low = block, *high = block + 128, *scales = block + 192;
  const float d = half_at(block, 208);
  for (int i = 0; i < kLarge; ++i) {
    const int four = byte_at(low, i / 128 * 64 + i % 64) >> (i % 128 / 64 * 4) & 15;
    const int q = (four | two_bits(high, i) << 4) - 32;
    out[i] = d * static_cast<float>(signed_at(scales, i / 16)) * static_cast<float>(q);
  }
}

constexpr std::array<GgufType, 37> kTypes{{{0, "F32", 1, 4, expand_f32},
                                           {1, "F16", 1, 2, expand_f16},
                                           {2, "Q4_0", kSmall, 18, expand_q4_0},
                                           {3, "Q4_1", kSmall, 20, expand_q4_1},
                                           {6, "Q5_0", kSmall, 22, expand_q5_0},
                                           {7, "Q5_1", kSmall, 24, expand_q5_1},
                                           {8, "Q8_0", kSmall, 34, expand_q8_0},
                                           {9, "Q8_1"},
                                           {10, "Q2_K", kLarge, 84, expand_q2_k},
                                           {11, "Q3_K", kLarge, 110, expand_q3_k},
                                           {12, "Q4_K", kLarge, 144, expand_q4_k},
                                           {13, "Q5_K", kLarge, 176, expand_q5_k},
                                           {14, "Q6_K", kLarge, 210, expand_q6_k},
                                           {15, "Q8_K"},
                                           {16, "IQ2_XXS"},
                                           {17, "IQ2_XS"},
                                           {18, "IQ3_XXS"},
                                           {19, "IQ1_S"},
                                           {20, "IQ4_NL"},
                                           {21, "IQ3_S"},
                                           {22, "IQ2_S"},
                                           {23, "IQ4_XS"},
                                           {24, "I8"},
                                           {25, "I16"},
                                           {26, "I32"},
                                           {27, "I64"},
                                           {28, "F64"},
                                           {29, "IQ1_M"},
                                           {30, "BF16", 1, 2, expand_bf16},
                                           {31, "Q4_0_4_4"},
                                           {32, "Q4_0_4_8"},
                                           {33, "Q4_0_8_8"},
                                           {34, "TQ1_0"},
                                           {35, "TQ2_0"},
                                           {39, "MXFP4"},
                                           {40, "NVFP4"},
                                           {41, "Q1_0"}}};

// The scale of a block makes its largest magnitude 127. It is rounded to f16 only when it is
// stored, so the codes do not depend on that rounding. Halves are rounded away from zero.
void pack_q8_0(const float* values, std::byte* out) {
  float most = 0;
  for (int i = 0; i < kSmall; ++i) most = std::max(most, std::abs(values[i]));
  const float d = most / 127, inverse = d == 0 ? 0 : 1 / d;
  const uint16_t half = narrow_half(d);
  std::memcpy(out, &half, sizeof(half));
  for (int i = 0; i < kSmall; ++i) {
    const float code = std::round(values[i] * inverse);
    out[2 + i] = static_cast<std::byte>(static_cast<int8_t>(std::isfinite(code) ? code : 0));
  }
}

// Returns the dtype of a type without blocks.
DType plain_dtype(const GgufType& type) {
  return type.name == "F32" ? DS_DTYPE_F32 : type.name == "F16" ? DS_DTYPE_F16 : DS_DTYPE_BF16;
}

}  // namespace

const GgufType* find_gguf_type(uint32_t number) {
  auto found = std::ranges::find(kTypes, number, &GgufType::number);
  return found == kTypes.end() ? nullptr : &*found;
}

const GgufType& written_gguf_type(std::string_view name) {
  for (auto [known, number] : {std::pair{"f32", 0u}, {"f16", 1u}, {"bf16", 30u}, {"q8_0", 8u}}) {
    if (name == known) return *find_gguf_type(number);
  }
  raise(DS_ERROR_INVALID_ARGUMENT, "type must be f32, f16, bf16 or q8_0, got '{}'", name);
}

std::string expandable_gguf_types() {
  std::string out;
  for (const GgufType& type : kTypes) {
    if (type.expand != nullptr) out += (out.empty() ? "" : ", ") + std::string(type.name);
  }
  return out;
}

void expand_gguf(const GgufType& type, const std::byte* data, int64_t count, float* out) {
  if (type.block == 1) return widen(plain_dtype(type), data, count, out);
  for (int64_t at = 0; at < count; at += type.block, data += type.bytes)
    type.expand(data, out + at);
}

void pack_gguf(const GgufType& type, const float* values, int64_t count, std::byte* out) {
  if (type.block == 1) return narrow(plain_dtype(type), values, count, out);
  ensure(type.name == "Q8_0", "values cannot be packed as {}", type.name);
  for (int64_t at = 0; at < count; at += type.block, out += type.bytes) pack_q8_0(values + at, out);
}

}  // namespace ds
