// Phi3ForCausalLM: as Llama, with q, k, v and gate, up in one matrix each.
#include "core/base/error.h"
#include "nn/models/decoder.h"
#include "nn/models/hf_families.h"

namespace ds {
namespace {

Decoder read_phi3(HfConfig& config) {
  Decoder d = read_decoder(config, 1e-5);
  d.act = read_activation(config, "hidden_act", "silu");
  d.rope = read_rope(config, d.width);
  config.pass_over("original_max_position_embeddings");  // of rope_type longrope, which is refused
  d.windows =
      read_windows(config, config.size_or("sliding_window", 0), std::vector<bool>(d.windows.size(), true));
  config.only("attention_bias", false);
  return d;
}

ValueId block(LayerBuilder& build, const Decoder& d, int64_t layer, ValueId x, int64_t seq, double dropout) {
  std::string name = fmt::format("model.layers.{}", layer), self = name + ".self_attn";
  LinearOptions linear{d.stddev, false};
  int64_t heads = d.heads + 2 * d.kv_heads;
  ValueId h = decoder_norm(build, d, name + ".input_layernorm", x);
  h = build.linear(self + ".qkv_proj", h, heads * d.width, linear);
  h = build.rope(self + ".rope", h, heads, seq, d.rope, heads, d.heads + d.kv_heads);
  h = build.attention(self, {h}, attention_options(d, layer, seq));
  h = build.linear(self + ".o_proj", h, d.hidden, linear);
  x = build.add(self + ".residual", x, build.dropout(self + ".dropout", h, dropout));
  h = decoder_norm(build, d, name + ".post_attention_layernorm", x);
  h = build.linear(name + ".mlp.gate_up_proj", h, 2 * d.inner, linear);
  h = build.gated(name + ".mlp.act", {h}, d.act);
  h = build.linear(name + ".mlp.down_proj", h, d.hidden, linear);
  return build.add(name + ".mlp.residual", x, build.dropout(name + ".mlp.dropout", h, dropout));
}

}  // namespace

HfModel build_phi3(HfConfig& config, int64_t bound, int64_t seq) {
  Decoder d = read_phi3(config);
  HfModel model = begin_model(config, bound);
  LayerBuilder build(model.graph);
  ValueId x = decoder_embedding(model, build, d);
  double dropout = config.dropout("resid_pdrop");
  for (int64_t i = 0; i < d.layers; ++i) x = block(build, d, i, x, seq, dropout);
  x = decoder_norm(build, d, "model.norm", x);
  ValueId logits = add_head(model, build, config, x, "lm_head", "model.embed_tokens", d.stddev, false);
  end_model(model, config, logits);
  return model;
}

}  // namespace ds
