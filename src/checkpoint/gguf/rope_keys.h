#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/gguf/families.h"
#include "core/base/json.h"
#include "io/gguf.h"
#include "nn/models/hf_config.h"

namespace ds {

// Tensors of a GGUF file that are computed from config.json: factors of the rope's frequencies.
using GgufFactors = std::vector<std::pair<std::string, std::vector<float>>>;

// The part of a GGUF file that describes a model, without its weights and vocabulary.
struct GgufModelKeys {
  GgufMetadata metadata;
  GgufFactors factors;
};

// Reads a tensor of f32 numbers by name.
using ReadFactors = std::function<std::vector<float>(const std::string& name)>;

// Adds the keys and factors of the rope of a config.json to `out`. `width` is that of a head.
// Throws DS_ERROR_UNSUPPORTED, naming key and value, for a scaling that the format cannot express.
void add_rope_keys(const HfConfig& config, const GgufFamily& family, int64_t width,
                   GgufModelKeys& out);

// Adds the keys of the rope of a GGUF file to `config`. `width` is that of a head.
void read_rope_keys(const GgufHeader& header, const GgufFamily& family, int64_t width,
                    const ReadFactors& read, Json& config);

}  // namespace ds
