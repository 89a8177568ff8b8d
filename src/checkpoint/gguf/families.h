#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/base/json.h"
#include "io/gguf.h"

namespace ds {

// How a GGUF file orders the elements of a tensor, compared with a model folder.
enum class GgufOrder : uint8_t {
  same,
  // The rows of a head alternate between its halves: 0, h, 1, h + 1, ..., where h is half of the
  // head's width. llama.cpp then rotates neighbours. Rows of queries or of keys.
  query_pairs,
  key_pairs,
  // All q rows of all heads, then k, then v. The folder has q, k and v head by head.
  parts_first,
  // The matrix is transposed.
  transposed,
  // The elements are stored plus one.
  plus_one
};

// A tensor of a model folder and its name in a GGUF file, both without ".weight" or ".bias". '#'
// stands for the number of the layer, '@' for that of the expert.
struct GgufName {
  std::string_view folder, file;
  GgufOrder order = GgufOrder::same;
};

// A key of config.json and a key of the metadata, after the name of the architecture, that have the
// same value.
struct GgufKey {
  std::string_view folder, file;
  GgufKind kind = GgufKind::u32;
};

// A family that both model folders and GGUF files know.
struct GgufFamily {
  // The model_type of config.json, and the class that Transformers builds.
  std::string_view model_type, class_name;
  // The value of general.architecture.
  std::string_view architecture;
  // The key of the activation, and the only activation that llama.cpp computes for the family.
  std::string_view activation_key, activation;
  // The key of the number of attention heads.
  std::string_view heads;
  std::span<const GgufName> names;
  std::span<const GgufKey> keys;
};

// Returns the family of a config.json. Throws DS_ERROR_UNSUPPORTED, naming the known ones, if
// llama.cpp has no such family.
const GgufFamily& gguf_family(const Json& config);
// Returns the family of a GGUF file.
const GgufFamily& gguf_family(const GgufHeader& header);

// The place of a parameter in a GGUF file.
struct GgufPlace {
  std::string name;
  GgufOrder order = GgufOrder::same;
  // The index of the parameter among the experts that the tensor stacks, or -1.
  int64_t expert = -1;
};
// Returns the place of the parameter with that name in a model folder. Throws DS_ERROR_UNSUPPORTED
// if the format has none.
GgufPlace gguf_place(const GgufFamily& family, const std::string& parameter);

}  // namespace ds
