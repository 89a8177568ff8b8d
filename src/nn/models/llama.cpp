// LlamaForCausalLM, and MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, which differ from it in
// biases, head norms and windows.
#include "core/base/error.h"
#include "nn/models/decoder.h"
#include "nn/models/hf_families.h"

namespace ds {
namespace {

// Qwen: layers from max_window_layers on slide, where windows are used at all.
void read_qwen_windows(HfConfig& config, Decoder& d) {
  config.only("use_mrope", false);
  bool used = config.flag_or("use_sliding_window", false);
  int64_t window = config.size_or_none("sliding_window", 4096);
  int64_t full = config.count_or("max_window_layers", 28);
  std::vector<bool> sliding;
  for (int64_t i = 0; i < d.layers; ++i) sliding.push_back(used && i >= full);
  d.windows = read_windows(config, used ? window : 0, sliding);
}

Decoder read_llama(HfConfig& config, int64_t seq) {
  const std::string& family = config.family();
  Decoder d = read_decoder(config, 1e-6, family == "qwen3" ? 128 : 0);
  d.act = read_activation(config, "hidden_act", "silu");
  d.rope = read_rope(config, d.width, seq);
  if (family == "llama" || family == "qwen3") {
    d.qkv_bias = d.out_bias = config.flag_or("attention_bias", false);
  }
  if (family == "llama") d.mlp_bias = config.flag_or("mlp_bias", false);
  if (family == "mistral") {
    d.windows = read_windows(config, config.size_or_none("sliding_window", 4096),
                             std::vector<bool>(d.windows.size(), true));
  }
  if (family == "qwen2") d.qkv_bias = true;
  if (family == "qwen3") d.qk_norm = true;
  if (family == "qwen2" || family == "qwen3") read_qwen_windows(config, d);
  return d;
}

}  // namespace

HfModel build_llama(HfConfig& config, int64_t bound, int64_t seq) {
  return build_decoder(config, read_llama(config, seq), bound, seq);
}

}  // namespace ds
