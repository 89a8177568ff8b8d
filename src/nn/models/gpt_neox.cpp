// Builds GPTNeoXForCausalLM (Black et al., arXiv:2204.06745): a decoder with rope on a part of each
// head. q, k and v are interleaved by head in one matrix. With use_parallel_residual both branches
// have the same input,
//   x = x + attention(norm1(x)) + mlp(norm2(x));
// otherwise the input of the second branch is the sum of x and the first branch.
#include <fmt/core.h>

#include <cstdint>
#include <string>

#include "core/base/error.h"
#include "nn/layers/layers.h"
#include "nn/models/hf_families.h"
#include "nn/models/hf_options.h"
#include "nn/models/hf_rope.h"

namespace ds {
namespace {

// The sizes and options of a model.
struct NeoX {
  int64_t hidden, inner, heads;
  double eps;
  std::string act;
  RopeOptions rope;
  bool parallel;
  double dropout, attention_dropout;
  LinearOptions attention, mlp;
};

NeoX read_neox(HfConfig& config) {
  NeoX neox;
  neox.hidden = config.size("hidden_size");
  neox.inner = config.size("intermediate_size");
  neox.heads = config.size("num_attention_heads");
  check_heads(neox.hidden, neox.heads);
  neox.eps = config.positive("layer_norm_eps");
  neox.act = read_activation(config, "hidden_act");
  int64_t width = neox.hidden / neox.heads, other = config.size_or("head_dim", width);
  // The file may state the width of a head, but not change it.
  require(other == width, "key 'head_dim' must be hidden_size / num_attention_heads = {}, got {}",
          width, other);
  neox.rope = read_rope(
      config, width, {.partly = true, .theta_key = "rotary_emb_base", .partial_key = "rotary_pct"});
  neox.parallel = config.flag("use_parallel_residual");
  neox.dropout = config.dropout("hidden_dropout");
  neox.attention_dropout = config.dropout("attention_dropout");
  double stddev = config.positive("initializer_range");
  neox.attention = {stddev, config.flag("attention_bias")};
  neox.mlp = {stddev, true};
  return neox;
}

// Adds one layer.
ValueId block(LayerBuilder& build, const NeoX& neox, const std::string& name, ValueId x,
              ValueId mask, int64_t seq) {
  AttentionOptions options{neox.heads, neox.heads, seq};
  options.mask = mask;
  options.per_head = true;
  options.dropout = neox.attention_dropout;
  ValueId h = build.layer_norm(name + ".input_layernorm", x, neox.eps);
  h = build.linear(name + ".attention.query_key_value", h, 3 * neox.hidden, neox.attention);
  // Rotates the first two of every three heads (q, k, v).
  h = build.rope(name + ".attention.rope", h, 3 * neox.heads, seq, neox.rope, 3, 2);
  h = build.attention(name + ".attention", {h}, options);
  h = build.linear(name + ".attention.dense", h, neox.hidden, neox.attention);
  h = build.dropout(name + ".attention.dropout", h, neox.dropout);
  ValueId after = build.add(name + ".attention.residual", x, h);
  h = build.layer_norm(name + ".post_attention_layernorm", neox.parallel ? x : after, neox.eps);
  h = build.linear(name + ".mlp.dense_h_to_4h", h, neox.inner, neox.mlp);
  h = build.activation(name + ".mlp.act", h, neox.act);
  h = build.linear(name + ".mlp.dense_4h_to_h", h, neox.hidden, neox.mlp);
  h = build.dropout(name + ".mlp.dropout", h, neox.dropout);
  return build.add(name + ".mlp.residual", after, h);
}

}  // namespace

HfModel build_gpt_neox(HfConfig& config, int64_t bound, int64_t seq) {
  NeoX neox = read_neox(config);
  int64_t layers = read_layers(config, "num_hidden_layers");
  double stddev = neox.mlp.stddev;
  HfModel model = begin_model(config, bound);
  LayerBuilder build(model.graph, documents_of(model));
  ValueId tokens = model.graph.find_value("tokens");
  ValueId x =
      build.embedding("gpt_neox.embed_in", tokens, config.size("vocab_size"), neox.hidden, stddev);
  x = build.dropout("gpt_neox.emb_dropout", x, neox.dropout);
  ValueId mask = model.graph.find_value("mask");
  for (int64_t i = 0; i < layers; ++i) {
    x = block(build, neox, fmt::format("gpt_neox.layers.{}", i), x, mask, seq);
  }
  x = build.layer_norm("gpt_neox.final_layer_norm", x, neox.eps);
  end_model(model, config,
            add_head(model, build, config, x, "embed_out", "gpt_neox.embed_in", stddev));
  return model;
}

}  // namespace ds
