// Builds GPT2LMHeadModel (Radford et al., 2019): a pre-norm decoder with learned positions. The
// weights of linear layers are stored as [inputs, outputs].
#include <fmt/core.h>

#include <cmath>
#include <cstdint>
#include <string>

#include "core/base/error.h"
#include "nn/layers/layers.h"
#include "nn/models/hf_families.h"
#include "nn/models/hf_options.h"

namespace ds {
namespace {

// The sizes and options of a model.
struct Gpt2 {
  int64_t hidden, inner, layers;
  double eps;
  std::string act;
  AttentionOptions attention;
  bool scale_by_layer;
  // Dropout of both branches.
  double dropout;
  // Options of the linear layers into a branch, and of those back to the residual stream.
  LinearOptions in, out;
};

// Reads the keys of GPT-2, whose names differ from those of later families.
Gpt2 read_gpt2(HfConfig& config, int64_t seq) {
  Gpt2 gpt;
  gpt.hidden = config.size("n_embd");
  gpt.inner = config.size_or("n_inner", 4 * gpt.hidden);
  gpt.layers = read_layers(config, "n_layer");
  gpt.eps = config.positive("layer_norm_epsilon");
  gpt.act = read_activation(config, "activation_function");
  int64_t heads = config.size("n_head");
  require(gpt.hidden % heads == 0, "key 'n_embd' must be a multiple of n_head {}, got {}", heads,
          gpt.hidden);
  gpt.attention = {heads, heads, seq};
  bool scaled = config.flag("scale_attn_weights");
  gpt.scale_by_layer = config.flag("scale_attn_by_inverse_layer_idx");
  // The default scale, 1 / sqrt(head width), needs no attribute. Without scale_attn_weights the
  // scale is 1. With scale_attn_by_inverse_layer_idx it is also divided by the number of the layer,
  // counted from 1.
  if (!scaled || gpt.scale_by_layer) {
    gpt.attention.scale = scaled ? 1 / std::sqrt(static_cast<double>(gpt.hidden / heads)) : 1;
  }
  gpt.attention.dropout = config.dropout("attn_pdrop");
  gpt.dropout = config.dropout("resid_pdrop");
  double stddev = config.positive("initializer_range");
  gpt.in = {stddev, true, true};
  gpt.out = {stddev / std::sqrt(2 * static_cast<double>(gpt.layers)), true, true};
  return gpt;
}

// Adds one layer: x = x + attention(norm(x)), then x = x + mlp(norm(x)).
ValueId block(LayerBuilder& build, const Gpt2& gpt, int64_t layer, ValueId x) {
  std::string name = fmt::format("transformer.h.{}", layer);
  AttentionOptions attention = gpt.attention;
  if (gpt.scale_by_layer) attention.scale /= static_cast<double>(layer + 1);
  ValueId h = build.layer_norm(name + ".ln_1", x, gpt.eps);
  h = build.linear(name + ".attn.c_attn", h, 3 * gpt.hidden, gpt.in);
  h = build.attention(name + ".attn", {h}, attention);
  h = build.linear(name + ".attn.c_proj", h, gpt.hidden, gpt.out);
  h = build.dropout(name + ".attn.dropout", h, gpt.dropout);
  x = build.add(name + ".attn.residual", x, h);
  h = build.layer_norm(name + ".ln_2", x, gpt.eps);
  h = build.linear(name + ".mlp.c_fc", h, gpt.inner, gpt.in);
  h = build.activation(name + ".mlp.act", h, gpt.act);
  h = build.linear(name + ".mlp.c_proj", h, gpt.hidden, gpt.out);
  h = build.dropout(name + ".mlp.dropout", h, gpt.dropout);
  return build.add(name + ".mlp.residual", x, h);
}

}  // namespace

HfModel build_gpt2(HfConfig& config, int64_t bound, int64_t seq) {
  Gpt2 gpt = read_gpt2(config, seq);
  int64_t positions = read_positions(config, seq);
  HfModel model = begin_model(config, bound);
  gpt.attention.mask = model.graph.find_value("mask");
  LayerBuilder build(model.graph, documents_of(model));
  double stddev = gpt.in.stddev;
  ValueId tokens = model.graph.find_value("tokens");
  ValueId x =
      build.embedding("transformer.wte", tokens, config.size("vocab_size"), gpt.hidden, stddev);
  x = build.position("transformer.wpe", x, positions, seq, stddev);
  x = build.dropout("transformer.drop", x, config.dropout("embd_pdrop"));
  for (int64_t i = 0; i < gpt.layers; ++i) x = block(build, gpt, i, x);
  x = build.layer_norm("transformer.ln_f", x, gpt.eps);
  end_model(model, config, add_head(model, build, config, x, "lm_head", "transformer.wte", stddev));
  return model;
}

}  // namespace ds
