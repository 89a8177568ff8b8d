// Builds OPTForCausalLM (Zhang et al., arXiv:2205.01068): a decoder with learned positions, which
// are an input and count the unmasked tokens so far. Norms are applied before the branches or after
// the residual sums.
#include <fmt/core.h>

#include <cstdint>
#include <string>

#include "core/base/error.h"
#include "nn/layers/layers.h"
#include "nn/models/hf_families.h"
#include "nn/models/hf_options.h"

namespace ds {
namespace {

// The epsilon of norms, for which the configuration has no key.
constexpr double kEps = 1e-5;
// First row of the position table that tokens use.
constexpr int64_t kOffset = 2;

// The sizes and options of a model.
struct Opt {
  // Sizes; `embedding` is the width of the token table.
  int64_t hidden, inner, heads, embedding;
  std::string act;
  // Whether norms precede the branches, and whether they have a weight and a bias.
  bool norm_before, affine;
  // Dropout of branches, and of attention weights.
  double dropout, attention_dropout;
  // Probability with which an entire layer is skipped.
  double layerdrop;
  LinearOptions linear;
};

Opt read_opt(HfConfig& config) {
  Opt opt;
  opt.hidden = config.size("hidden_size");
  opt.inner = config.size("ffn_dim");
  opt.heads = config.size("num_attention_heads");
  opt.embedding = config.size_or("word_embed_proj_dim", opt.hidden);
  check_heads(opt.hidden, opt.heads);
  opt.act = read_activation(config, "activation_function");
  opt.norm_before = config.flag("do_layer_norm_before");
  opt.dropout = config.dropout("dropout");
  opt.attention_dropout = config.dropout("attention_dropout");
  opt.layerdrop = config.dropout("layerdrop");
  opt.linear = {config.positive("init_std"), config.flag("enable_bias")};
  opt.affine = config.flag("layer_norm_elementwise_affine");
  return opt;
}

// Returns attention with separate projections of q, k and v, and an output projection.
ValueId attention(LayerBuilder& build, const Opt& opt, const std::string& name, ValueId x,
                  ValueId mask, int64_t seq) {
  std::string self = name + ".self_attn";
  ValueId q = build.linear(self + ".q_proj", x, opt.hidden, opt.linear);
  ValueId k = build.linear(self + ".k_proj", x, opt.hidden, opt.linear);
  ValueId v = build.linear(self + ".v_proj", x, opt.hidden, opt.linear);
  AttentionOptions options{opt.heads, opt.heads, seq};
  options.mask = mask;
  options.dropout = opt.attention_dropout;
  ValueId y = build.attention(self, {q, k, v}, options);
  return build.linear(self + ".out_proj", y, opt.hidden, opt.linear);
}

// Adds one layer, with its norms before the branches or after the sums.
ValueId block(LayerBuilder& build, const Opt& opt, const std::string& name, ValueId x, ValueId mask,
              int64_t seq) {
  // Applies a norm if it belongs at this place, before or after the branch.
  auto norm = [&](const char* part, ValueId v, bool here) {
    return here ? build.layer_norm(name + part, v, kEps, opt.affine) : v;
  };
  ValueId h = norm(".self_attn_layer_norm", x, opt.norm_before);
  h = build.dropout(name + ".self_attn.dropout", attention(build, opt, name, h, mask, seq),
                    opt.dropout);
  x = build.add(name + ".self_attn.residual", x, h);
  x = norm(".self_attn_layer_norm", x, !opt.norm_before);
  h = norm(".final_layer_norm", x, opt.norm_before);
  h = build.activation(name + ".act", build.linear(name + ".fc1", h, opt.inner, opt.linear),
                       opt.act);
  h = build.dropout(name + ".dropout", build.linear(name + ".fc2", h, opt.hidden, opt.linear),
                    opt.dropout);
  x = build.add(name + ".residual", x, h);
  return norm(".final_layer_norm", x, !opt.norm_before);
}

}  // namespace

HfModel build_opt(HfConfig& config, int64_t bound, int64_t seq) {
  Opt opt = read_opt(config);
  int64_t layers = read_layers(config, "num_hidden_layers");
  int64_t positions = read_positions(config, seq);
  bool last_norm = !config.flag("_remove_final_layer_norm") && opt.norm_before;
  double stddev = opt.linear.stddev;
  HfModel model = begin_model(config, bound, true);
  model.position_offset = kOffset;
  ValueId mask = model.graph.find_value("mask"), rows = model.graph.find_value("positions");
  // With documents, the graph already has the input `positions`.
  if (!rows.exists()) rows = add_ids(model, "positions");
  LayerBuilder build(model.graph, documents_of(model));
  const std::string decoder = "model.decoder.";
  ValueId tokens = model.graph.find_value("tokens");
  int64_t vocab = config.size("vocab_size"), padding = read_padding(config, vocab);
  ValueId x =
      build.embedding(decoder + "embed_tokens", tokens, vocab, opt.embedding, stddev, padding);
  // If the token table and the layers have different widths, one projection leads to the layers and
  // another back.
  bool projected = opt.embedding != opt.hidden;
  if (projected) x = build.linear(decoder + "project_in", x, opt.hidden, {stddev, false});
  ValueId place =
      build.embedding(decoder + "embed_positions", rows, positions + kOffset, opt.hidden, stddev);
  x = build.add(decoder + "embedding", x, place);
  for (int64_t i = 0; i < layers; ++i) {
    std::string name = fmt::format("{}layers.{}", decoder, i);
    x = build.layerdrop(name + ".layerdrop", x, block(build, opt, name, x, mask, seq),
                        opt.layerdrop);
  }
  if (last_norm) x = build.layer_norm(decoder + "final_layer_norm", x, kEps, opt.affine);
  if (projected) x = build.linear(decoder + "project_out", x, opt.embedding, {stddev, false});
  end_model(model, config,
            add_head(model, build, config, x, "lm_head", decoder + "embed_tokens", stddev));
  return model;
}

}  // namespace ds
