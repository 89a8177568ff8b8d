// Builds LlamaForCausalLM (arXiv:2302.13971), and MistralForCausalLM, MinistralForCausalLM,
// Qwen2ForCausalLM and Qwen3ForCausalLM, which differ in biases, norms of heads, and windows.
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "nn/models/decoder.h"
#include "nn/models/hf_families.h"
#include "nn/models/hf_options.h"
#include "nn/models/hf_rope.h"

namespace ds {
namespace {

// In Qwen models, the layers from index max_window_layers on have a window, if use_sliding_window
// is set.
std::vector<int64_t> read_qwen_windows(const HfConfig& config, int64_t layers) {
  bool used = config.flag("use_sliding_window");
  int64_t window = config.size_or("sliding_window", 0), full = config.count("max_window_layers");
  std::vector<bool> sliding;
  for (int64_t i = 0; i < layers; ++i) sliding.push_back(used && i >= full);
  return read_windows(config, used ? window : 0, sliding);
}

Decoder read_llama(HfConfig& config) {
  const std::string& family = config.family();
  Decoder d = read_decoder(config);
  d.act = read_activation(config, "hidden_act");
  d.rope = read_rope(config, d.width);
  bool qwen = family == "qwen2" || family == "qwen3";
  d.windows = qwen ? read_qwen_windows(config, d.layers) : read_windows(config, d.layers);
  // Qwen2 has biases of q, k and v, but no key for them.
  if (family == "qwen2") d.qkv_bias = true;
  d.qk_norm = family == "qwen3";
  return d;
}

}  // namespace

HfModel build_llama(HfConfig& config, int64_t bound, int64_t seq) {
  return build_decoder(config, read_llama(config), bound, seq);
}

}  // namespace ds
