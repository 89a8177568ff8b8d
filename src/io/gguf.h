#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "io/gguf_types.h"

namespace ds {

// The type of a metadata value, by the number that the format gives it.
enum class GgufKind : uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  flag = 7,
  text = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12
};

// A value of the metadata: a list of elements of one kind, or a single element.
struct GgufValue {
  // The kind of each element; never `array`.
  GgufKind kind = GgufKind::u32;
  bool is_list = false;
  // The elements: numbers without a fraction and flags as integers, f32 and f64 as doubles.
  std::variant<std::vector<int64_t>, std::vector<double>, std::vector<std::string>> elements;

  static GgufValue u32(int64_t value) { return {GgufKind::u32, false, std::vector{value}}; }
  static GgufValue f32(double value) { return {GgufKind::f32, false, std::vector{value}}; }
  static GgufValue flag(bool value) {
    return {GgufKind::flag, false, std::vector<int64_t>{value ? 1 : 0}};
  }
  static GgufValue text(std::string value) {
    return {GgufKind::text, false, std::vector{std::move(value)}};
  }
};

using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;

// A tensor of a GGUF file.
struct GgufTensor {
  std::string name;
  const GgufType* type = nullptr;
  // The extents in the order of safetensors, outermost first. The file has them innermost first.
  std::vector<int64_t> shape;
  // Offset of the first data byte in the file.
  int64_t begin = 0;
  int64_t bytes = 0;
};

// The head of a GGUF file: everything but the data of its tensors.
struct GgufHeader {
  GgufMetadata metadata;
  // The tensors, in the order of their data.
  std::vector<GgufTensor> tensors;
  int64_t file_bytes = 0;

  // Returns the tensor or the value of that name, or null.
  const GgufTensor* find(std::string_view name) const;
  const GgufValue* value(std::string_view key) const;
};

// Returns whether `path` is a regular file that begins like a GGUF file.
bool is_gguf(const std::string& path);

// Reads and checks the head of a GGUF file of version 2 or 3: every length and count is within the
// file and the metadata has at most 64 MiB, texts are UTF-8, keys and names are unique, and the
// data of each tensor has the size of its shape, begins at a multiple of the file's alignment, is
// within the file, and overlaps no other. Throws DS_ERROR_CORRUPT naming path and key or tensor, or
// DS_ERROR_UNSUPPORTED for another version, for big-endian files, and for a tensor of a type that
// cannot be expanded. Allocates nothing based on a size that the file declares unless the file has
// as many bytes.
GgufHeader read_gguf_header(const std::string& path);

// Lays out tensors, given by name, type and shape, in this order; the data of each starts at a
// multiple of 32. Returns the bytes to write at offset 0, which end with padding, and sets `begin`
// and `bytes` of the tensors. The file ends at a multiple of 32 after the last tensor.
std::string plan_gguf(const GgufMetadata& metadata, std::vector<GgufTensor>& tensors);

// Returns the bytes of `count` elements of a type, which must be a multiple of its block.
int64_t gguf_bytes(const GgufType& type, int64_t count);

}  // namespace ds
