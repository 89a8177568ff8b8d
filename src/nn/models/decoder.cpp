#include "nn/models/decoder.h"

#include "core/base/error.h"

namespace ds {

Decoder read_decoder(HfConfig& config, double eps, int64_t width) {
  Decoder d;
  d.vocab = config.size("vocab_size");
  d.hidden = config.size("hidden_size");
  d.inner = config.size("intermediate_size");
  d.layers = read_layers(config, "num_hidden_layers");
  d.heads = config.size("num_attention_heads");
  d.kv_heads = read_kv_heads(config, d.heads);
  d.width = read_head_width(config, d.hidden, d.heads, width);
  d.eps = config.positive_or("rms_norm_eps", eps);
  d.stddev = config.positive_or("initializer_range", 0.02);
  d.windows.assign(static_cast<size_t>(d.layers), 0);
  config.pass_over("max_position_embeddings");  // rope has no table
  return d;
}

AttentionOptions attention_options(const Decoder& d, int64_t layer, int64_t seq) {
  AttentionOptions options{d.heads, d.kv_heads, seq};
  options.window = d.windows[static_cast<size_t>(layer)];
  options.scale = d.scale;
  options.softcap = d.softcap;
  return options;
}

ValueId decoder_attention(LayerBuilder& build, const Decoder& d, const std::string& name, int64_t layer,
                          ValueId x, int64_t seq) {
  std::string self = name + ".self_attn";
  LinearOptions in{d.stddev, d.qkv_bias}, out{d.stddev, d.out_bias};
  ValueId q = build.linear(self + ".q_proj", x, d.heads * d.width, in);
  ValueId k = build.linear(self + ".k_proj", x, d.kv_heads * d.width, in);
  ValueId v = build.linear(self + ".v_proj", x, d.kv_heads * d.width, in);
  if (d.qk_norm) {
    q = build.rms_norm(self + ".q_norm", q, d.eps, d.width);
    k = build.rms_norm(self + ".k_norm", k, d.eps, d.width);
  }
  q = build.rope(self + ".q_rope", q, d.heads, seq, d.rope);
  k = build.rope(self + ".k_rope", k, d.kv_heads, seq, d.rope);
  ValueId y = build.attention(self, {q, k, v}, attention_options(d, layer, seq));
  return build.linear(self + ".o_proj", y, d.hidden, out);
}

ValueId decoder_mlp(LayerBuilder& build, const Decoder& d, const std::string& name, ValueId x) {
  LinearOptions linear{d.stddev, d.mlp_bias};
  ValueId gate = build.linear(name + ".mlp.gate_proj", x, d.inner, linear);
  ValueId up = build.linear(name + ".mlp.up_proj", x, d.inner, linear);
  return build.linear(name + ".mlp.down_proj", build.gated(name + ".mlp.act", {gate, up}, d.act), d.hidden,
                      linear);
}

ValueId decoder_embedding(HfModel& model, LayerBuilder& build, const Decoder& d) {
  return build.embedding("model.embed_tokens", model.graph.find_value("tokens"), d.vocab, d.hidden, d.stddev);
}

ValueId decoder_norm(LayerBuilder& build, const Decoder& d, const std::string& name, ValueId x) {
  return build.rms_norm(name, x, d.eps, 0, d.norm_offset);
}

}  // namespace ds
