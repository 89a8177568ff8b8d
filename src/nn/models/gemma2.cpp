// Builds Gemma2ForCausalLM (arXiv:2408.00118): norms before and after every branch, norms that
// multiply by 1 + w, soft-capped scores and logits, a window in every other layer, and embeddings
// multiplied by sqrt(hidden).
#include <fmt/core.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "nn/layers/layers.h"
#include "nn/models/decoder.h"
#include "nn/models/hf_families.h"
#include "nn/models/hf_options.h"
#include "nn/models/hf_rope.h"

namespace ds {
namespace {

// Reads the keys of a model. Without layer_types, the layers with an even index have a window.
Decoder read_gemma2(HfConfig& config) {
  Decoder d = read_decoder(config);
  d.norm_offset = true;
  d.act = read_activation(config, "hidden_activation");
  d.rope = read_rope(config, d.width);
  d.scale = 1 / std::sqrt(config.positive("query_pre_attn_scalar"));
  d.softcap = config.positive_or("attn_logit_softcapping", 0);
  std::vector<bool> sliding;
  for (int64_t i = 0; i < d.layers; ++i) sliding.push_back(i % 2 == 0);
  d.windows = read_windows(config, config.size_or("sliding_window", 0), sliding);
  return d;
}

// Adds one layer: x = x + norm(branch(norm(x))), first for attention and then for the feed-forward
// part.
ValueId block(LayerBuilder& build, const Decoder& d, int64_t layer, ValueId x, int64_t seq) {
  std::string name = fmt::format("model.layers.{}", layer);
  ValueId h = decoder_norm(build, d, name + ".input_layernorm", x);
  h = decoder_attention(build, d, name, layer, h, seq);
  h = decoder_norm(build, d, name + ".post_attention_layernorm", h);
  x = build.add(name + ".self_attn.residual", x, h);
  h = decoder_norm(build, d, name + ".pre_feedforward_layernorm", x);
  h = decoder_mlp(build, d, name, h);
  h = decoder_norm(build, d, name + ".post_feedforward_layernorm", h);
  return build.add(name + ".mlp.residual", x, h);
}

}  // namespace

HfModel build_gemma2(HfConfig& config, int64_t bound, int64_t seq) {
  Decoder d = read_gemma2(config);
  double cap = config.positive_or("final_logit_softcapping", 0);
  HfModel model = begin_model(config, bound);
  d.mask = model.graph.find_value("mask");
  LayerBuilder build(model.graph, documents_of(model));
  double root = std::sqrt(static_cast<double>(d.hidden));
  ValueId x =
      model.graph.add("scale", {decoder_embedding(model, build, d)}, {{"factor", root}}, "scaled");
  for (int64_t i = 0; i < d.layers; ++i) x = block(build, d, i, x, seq);
  ValueId logits = decoder_logits(model, build, config, d, x);
  if (cap > 0) logits = model.graph.add("softcap", {logits}, {{"cap", cap}}, "logits.capped");
  end_model(model, config, logits);
  return model;
}

}  // namespace ds
