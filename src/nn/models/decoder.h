#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "nn/layers/layers.h"
#include "nn/models/hf.h"
#include "nn/models/hf_config.h"
#include "nn/models/hf_options.h"
#include "nn/models/hf_rope.h"

namespace ds {

// The common description of the Llama-like families: pre-norm decoders with RMSNorm, rope, grouped
// queries and gated feed-forward layers. Linear layers have no biases unless a flag says so.
struct Decoder {
  // Sizes; `width` is the number of columns of a head.
  int64_t vocab, hidden, inner, layers, heads, kv_heads, width;
  double eps, stddev;
  std::string act;
  RopeOptions rope;
  // Row of the embedding that gets no gradient; -1 if there is no such row.
  int64_t padding = -1;
  // An input that masks tokens, if the model has one.
  ValueId mask;
  // Attention window of each layer; 0 means no window.
  std::vector<int64_t> windows;
  bool qkv_bias = false, out_bias = false, mlp_bias = false;
  // Whether each head of q and k is normalized by an RMSNorm.
  bool qk_norm = false;
  // Whether norms multiply by 1 + weight instead of by weight.
  bool norm_offset = false;
  // Whether q, k and v share one matrix, and gate and up another.
  bool packed = false;
  // Probability of the dropout after each branch.
  double dropout = 0;
  // Scale and cap of the attention scores, as in AttentionOptions.
  double scale = 0, softcap = 0;
  double attention_dropout = 0;
};

// Reads sizes, eps, initializer_range, padding, biases and attention dropout. head_dim defaults to
// hidden / heads.
Decoder read_decoder(const HfConfig& config);

// Adds NAME.self_attn with q_proj, k_proj, v_proj (or qkv_proj if packed) and o_proj.
ValueId decoder_attention(LayerBuilder& build, const Decoder& decoder, const std::string& name,
                          int64_t layer, ValueId x, int64_t seq);
// Adds NAME.mlp with gate_proj, up_proj (or gate_up_proj if packed) and down_proj.
ValueId decoder_mlp(LayerBuilder& build, const Decoder& decoder, const std::string& name,
                    ValueId x);
// Returns the options of attention in one layer.
AttentionOptions attention_options(const Decoder& decoder, int64_t layer, int64_t seq);

// These functions return x + attention(norm(x)) and x + mlp(norm(x)), with the names of Llama.
ValueId attention_branch(LayerBuilder& build, const Decoder& decoder, const std::string& name,
                         int64_t layer, ValueId x, int64_t seq);
ValueId mlp_branch(LayerBuilder& build, const Decoder& decoder, const std::string& name, ValueId x);

// A model consists of decoder_embedding(), the caller's layers, and decoder_logits(), which also
// adds model.norm.
ValueId decoder_embedding(HfModel& model, LayerBuilder& build, const Decoder& decoder);
ValueId decoder_norm(LayerBuilder& build, const Decoder& decoder, const std::string& name,
                     ValueId x);
ValueId decoder_logits(HfModel& model, LayerBuilder& build, const HfConfig& config,
                       const Decoder& decoder, ValueId x);

// Builds a model whose layers consist of attention_branch() and mlp_branch() only.
HfModel build_decoder(const HfConfig& config, Decoder decoder, int64_t bound, int64_t seq);

}  // namespace ds
