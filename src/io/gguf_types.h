#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ds {

// An element type of GGUF tensors. Elements are stored in blocks of `block` elements, each of
// `bytes` bytes. A type that libds cannot expand has only a number and a name.
struct GgufType {
  // The number by which a file names the type.
  uint32_t number = 0;
  // The name that llama.cpp gives the type: "F32", "Q4_K".
  std::string_view name;
  int64_t block = 0, bytes = 0;
  // Expands one block to f32.
  void (*expand)(const std::byte* block, float* out) = nullptr;
};

// Returns the type with that number, or null if the format has no such type.
const GgufType* find_gguf_type(uint32_t number);
// Returns the type of tensors that libds writes: "f32", "f16", "bf16" or "q8_0".
const GgufType& written_gguf_type(std::string_view name);
// Returns the names of all types that can be expanded, for messages.
std::string expandable_gguf_types();

// Converts `count` elements to f32. `count` must be a multiple of the type's block. The values have
// the bits that the formulas give in f32, with each product and sum rounded.
void expand_gguf(const GgufType& type, const std::byte* data, int64_t count, float* out);
// Converts `count` values to a type of written_gguf_type(). `count` must be a multiple of its
// block.
void pack_gguf(const GgufType& type, const float* values, int64_t count, std::byte* out);

}  // namespace ds
