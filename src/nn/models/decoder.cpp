// Builds Llama's decoder (Touvron et al., arXiv:2302.13971), with the options of the families that
// are derived from it. A layer computes
//   x = x + o_proj(attention(rope(q), rope(k), v)), with q, k and v projected from norm(x), and
//   x = x + down_proj(act(gate) * up), with gate and up projected from norm(x).
// If kv_heads < heads, queries are grouped (Ainslie et al., arXiv:2305.13245).
#include "nn/models/decoder.h"

#include <fmt/core.h>

#include <cstdint>

#include "core/base/error.h"
#include "core/graph/graph.h"
#include "nn/layers/layers.h"
#include "nn/models/hf.h"
#include "nn/models/hf_config.h"

namespace ds {

Decoder read_decoder(const HfConfig& config) {
  Decoder d;
  d.vocab = config.size("vocab_size");
  d.padding = read_padding(config, d.vocab);
  d.hidden = config.size("hidden_size");
  d.inner = config.size("intermediate_size");
  d.layers = read_layers(config, "num_hidden_layers");
  d.heads = config.size("num_attention_heads");
  d.kv_heads = read_kv_heads(config, d.heads);
  d.width = read_head_width(config, d.hidden, d.heads);
  d.eps = config.positive("rms_norm_eps");
  d.stddev = config.positive("initializer_range");
  // A window of 0 means that a row attends to all earlier rows. Families with windows set their
  // own.
  d.windows.assign(static_cast<size_t>(d.layers), 0);
  d.qkv_bias = d.out_bias = config.flag("attention_bias");
  d.mlp_bias = config.flag("mlp_bias");
  d.attention_dropout = config.dropout("attention_dropout");
  return d;
}

AttentionOptions attention_options(const Decoder& d, int64_t layer, int64_t seq) {
  AttentionOptions options{d.heads, d.kv_heads, seq};
  options.window = d.windows[static_cast<size_t>(layer)];
  options.scale = d.scale;
  options.softcap = d.softcap;
  options.mask = d.mask;
  options.dropout = d.attention_dropout;
  return options;
}

namespace {

// Returns attention without o_proj, from one projection. Its columns are the heads of q, then of k,
// then of v, so rope rotates the first heads + kv_heads of them.
ValueId packed_attention(LayerBuilder& build, const Decoder& d, const std::string& self, ValueId x,
                         const AttentionOptions& options) {
  int64_t heads = d.heads + 2 * d.kv_heads;
  ValueId h = build.linear(self + ".qkv_proj", x, heads * d.width, {d.stddev, d.qkv_bias});
  h = build.rope(self + ".rope", h, heads, options.seq, d.rope, heads, d.heads + d.kv_heads);
  return build.attention(self, {h}, options);
}

// Returns attention without o_proj, from separate projections of q, k and v.
ValueId split_attention(LayerBuilder& build, const Decoder& d, const std::string& self, ValueId x,
                        const AttentionOptions& options) {
  LinearOptions in{d.stddev, d.qkv_bias};
  ValueId q = build.linear(self + ".q_proj", x, d.heads * d.width, in);
  ValueId k = build.linear(self + ".k_proj", x, d.kv_heads * d.width, in);
  ValueId v = build.linear(self + ".v_proj", x, d.kv_heads * d.width, in);
  if (d.qk_norm) {
    q = build.rms_norm(self + ".q_norm", q, d.eps, d.width);
    k = build.rms_norm(self + ".k_norm", k, d.eps, d.width);
  }
  q = build.rope(self + ".q_rope", q, d.heads, options.seq, d.rope);
  k = build.rope(self + ".k_rope", k, d.kv_heads, options.seq, d.rope);
  return build.attention(self, {q, k, v}, options);
}

}  // namespace

ValueId decoder_attention(LayerBuilder& build, const Decoder& d, const std::string& name,
                          int64_t layer, ValueId x, int64_t seq) {
  std::string self = name + ".self_attn";
  AttentionOptions options = attention_options(d, layer, seq);
  ValueId y = d.packed ? packed_attention(build, d, self, x, options)
                       : split_attention(build, d, self, x, options);
  return build.linear(self + ".o_proj", y, d.hidden, {d.stddev, d.out_bias});
}

ValueId decoder_mlp(LayerBuilder& build, const Decoder& d, const std::string& name, ValueId x) {
  LinearOptions linear{d.stddev, d.mlp_bias};
  std::vector<ValueId> gated;
  if (d.packed) {
    gated = {build.linear(name + ".mlp.gate_up_proj", x, 2 * d.inner, linear)};
  } else {
    gated.push_back(build.linear(name + ".mlp.gate_proj", x, d.inner, linear));
    gated.push_back(build.linear(name + ".mlp.up_proj", x, d.inner, linear));
  }
  return build.linear(name + ".mlp.down_proj", build.gated(name + ".mlp.act", gated, d.act),
                      d.hidden, linear);
}

ValueId attention_branch(LayerBuilder& build, const Decoder& d, const std::string& name,
                         int64_t layer, ValueId x, int64_t seq) {
  ValueId h = decoder_norm(build, d, name + ".input_layernorm", x);
  h = decoder_attention(build, d, name, layer, h, seq);
  h = build.dropout(name + ".self_attn.dropout", h, d.dropout);
  return build.add(name + ".self_attn.residual", x, h);
}

ValueId mlp_branch(LayerBuilder& build, const Decoder& d, const std::string& name, ValueId x) {
  ValueId h = decoder_norm(build, d, name + ".post_attention_layernorm", x);
  h = decoder_mlp(build, d, name, h);
  h = build.dropout(name + ".mlp.dropout", h, d.dropout);
  return build.add(name + ".mlp.residual", x, h);
}

ValueId decoder_embedding(HfModel& model, LayerBuilder& build, const Decoder& d) {
  return build.embedding("model.embed_tokens", model.graph.find_value("tokens"), d.vocab, d.hidden,
                         d.stddev, d.padding);
}

ValueId decoder_norm(LayerBuilder& build, const Decoder& d, const std::string& name, ValueId x) {
  return build.rms_norm(name, x, d.eps, 0, d.norm_offset);
}

ValueId decoder_logits(HfModel& model, LayerBuilder& build, const HfConfig& config,
                       const Decoder& d, ValueId x) {
  x = decoder_norm(build, d, "model.norm", x);
  return add_head(model, build, config, x, "lm_head", "model.embed_tokens", d.stddev);
}

// The mask is an input of the graph, so it exists only once the model has been created.
HfModel build_decoder(const HfConfig& config, Decoder d, int64_t bound, int64_t seq) {
  HfModel model = begin_model(config, bound);
  d.mask = model.graph.find_value("mask");
  LayerBuilder build(model.graph, documents_of(model));
  ValueId x = decoder_embedding(model, build, d);
  for (int64_t i = 0; i < d.layers; ++i) {
    std::string name = fmt::format("model.layers.{}", i);
    x = attention_branch(build, d, name, i, x, seq);
    x = mlp_branch(build, d, name, x);
  }
  end_model(model, config, decoder_logits(model, build, config, d, x));
  return model;
}

}  // namespace ds
