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

// What the Llama-like families share: pre-norm decoders with RMSNorm, rope, grouped queries and
// gated feed-forward layers, without biases but where said.
struct Decoder {
  int64_t vocab, hidden, inner, layers, heads, kv_heads, width;  // width: of a head
  double eps, stddev;
  std::string act;
  RopeOptions rope;
  int64_t padding = -1;          // row of the embedding without gradient
  ValueId mask;                  // of hidden tokens
  std::vector<int64_t> windows;  // by layer
  bool qkv_bias = false, out_bias = false, mlp_bias = false;
  bool qk_norm = false;           // RMSNorm of each head of q and k
  bool norm_offset = false;       // norms multiply by 1 + weight
  bool packed = false;            // q, k, v in one matrix; gate, up in one
  double dropout = 0;             // of both branches
  double scale = 0, softcap = 0;  // of attention
  double attention_dropout = 0;
};

// Sizes, eps, initializer_range, padding and biases. head_dim is hidden / heads when there is none.
Decoder read_decoder(const HfConfig& config);

// NAME.self_attn with q_proj, k_proj, v_proj (packed: qkv_proj) and o_proj.
ValueId decoder_attention(LayerBuilder& build, const Decoder& decoder, const std::string& name,
                          int64_t layer, ValueId x, int64_t seq);
// NAME.mlp with gate_proj, up_proj (packed: gate_up_proj) and down_proj.
ValueId decoder_mlp(LayerBuilder& build, const Decoder& decoder, const std::string& name,
                    ValueId x);
AttentionOptions attention_options(const Decoder& decoder, int64_t layer, int64_t seq);

// x + attention of its norm, and x + mlp of its norm, as Llama has them.
ValueId attention_branch(LayerBuilder& build, const Decoder& decoder, const std::string& name,
                         int64_t layer, ValueId x, int64_t seq);
ValueId mlp_branch(LayerBuilder& build, const Decoder& decoder, const std::string& name, ValueId x);

// Inputs and model.embed_tokens; the caller's layers; model.norm with the logits.
ValueId decoder_embedding(HfModel& model, LayerBuilder& build, const Decoder& decoder);
ValueId decoder_norm(LayerBuilder& build, const Decoder& decoder, const std::string& name,
                     ValueId x);
ValueId decoder_logits(HfModel& model, LayerBuilder& build, const HfConfig& config,
                       const Decoder& decoder, ValueId x);

// A model of both branches per layer and nothing else.
HfModel build_decoder(const HfConfig& config, Decoder decoder, int64_t bound, int64_t seq);

}  // namespace ds
