// Builds BertForMaskedLM (Devlin et al., arXiv:1810.04805): an encoder with norms after the
// residual sums,
//   x = norm(x + attention(x)), x = norm(x + mlp(x)),
// where every row attends to every row that is not masked. The head is a dense layer with a norm,
// followed by a matrix that is either tied to the word embeddings or separate.
#include <fmt/core.h>

#include <cstdint>
#include <string>

#include "core/base/error.h"
#include "nn/layers/layers.h"
#include "nn/models/hf_families.h"
#include "nn/models/hf_options.h"
#include "nn/models/hf_rows.h"

namespace ds {
namespace {

// The sizes and options of a model.
struct Bert {
  int64_t vocab, hidden, inner, heads, seq;
  double eps;
  std::string act;
  double dropout, attention_dropout;
  LinearOptions linear;
};

Bert read_bert(HfConfig& config, int64_t seq) {
  Bert bert;
  bert.vocab = config.size("vocab_size");
  bert.hidden = config.size("hidden_size");
  bert.inner = config.size("intermediate_size");
  bert.heads = config.size("num_attention_heads");
  bert.seq = seq;
  check_heads(bert.hidden, bert.heads);
  bert.eps = config.positive("layer_norm_eps");
  bert.act = read_activation(config, "hidden_act");
  bert.dropout = config.dropout("hidden_dropout_prob");
  bert.attention_dropout = config.dropout("attention_probs_dropout_prob");
  bert.linear = {config.positive("initializer_range")};
  return bert;
}

// Returns the normalized sum of word, type and position embeddings.
ValueId embeddings(HfModel& model, LayerBuilder& build, HfConfig& config, const Bert& bert) {
  const std::string name = "bert.embeddings.";
  double stddev = bert.linear.stddev;
  int64_t positions = read_positions(config, bert.seq);
  ValueId tokens = model.graph.find_value("tokens"), types = add_ids(model, "token_types");
  int64_t padding = read_padding(config, bert.vocab);
  ValueId x =
      build.embedding(name + "word_embeddings", tokens, bert.vocab, bert.hidden, stddev, padding);
  ValueId type = build.embedding(name + "token_type_embeddings", types,
                                 config.size("type_vocab_size"), bert.hidden, stddev);
  x = build.add(name + "sum", x, type);
  x = build.position(name + "position_embeddings", x, positions, bert.seq, stddev);
  x = build.layer_norm(name + "LayerNorm", x, bert.eps);
  return build.dropout(name + "dropout", x, bert.dropout);
}

// Adds one layer of the encoder.
ValueId block(LayerBuilder& build, const Bert& bert, const std::string& name, ValueId x,
              ValueId mask) {
  const std::string self = name + ".attention.self", out = name + ".attention.output";
  AttentionOptions options{bert.heads, bert.heads, bert.seq};
  options.causal = false;
  options.mask = mask;
  options.dropout = bert.attention_dropout;
  ValueId q = build.linear(self + ".query", x, bert.hidden, bert.linear);
  ValueId k = build.linear(self + ".key", x, bert.hidden, bert.linear);
  ValueId v = build.linear(self + ".value", x, bert.hidden, bert.linear);
  ValueId h = build.linear(out + ".dense", build.attention(self, {q, k, v}, options), bert.hidden,
                           bert.linear);
  h = build.dropout(out + ".dropout", h, bert.dropout);
  x = build.layer_norm(out + ".LayerNorm", build.add(out + ".residual", x, h), bert.eps);
  h = build.linear(name + ".intermediate.dense", x, bert.inner, bert.linear);
  h = build.activation(name + ".intermediate.act", h, bert.act);
  h = build.linear(name + ".output.dense", h, bert.hidden, bert.linear);
  h = build.dropout(name + ".output.dropout", h, bert.dropout);
  return build.layer_norm(name + ".output.LayerNorm", build.add(name + ".output.residual", x, h),
                          bert.eps);
}

}  // namespace

HfModel build_bert(HfConfig& config, int64_t bound, int64_t seq) {
  Bert bert = read_bert(config, seq);
  int64_t layers = read_layers(config, "num_hidden_layers");
  // Documents are isolated by the first row to which a row attends, which is enough only if
  // attention is causal.
  if (config.rows() == HfRows::documents) {
    raise(DS_ERROR_UNSUPPORTED,
          "family bert does not support documents that share a row: its attention is not causal");
  }
  HfModel model = begin_model(config, bound, true);
  model.causal = false;
  ValueId mask = model.graph.find_value("mask");
  LayerBuilder build(model.graph);
  ValueId x = embeddings(model, build, config, bert);
  for (int64_t i = 0; i < layers; ++i) {
    x = block(build, bert, fmt::format("bert.encoder.layer.{}", i), x, mask);
  }
  const std::string head = "cls.predictions.";
  x = build.linear(head + "transform.dense", x, bert.hidden, bert.linear);
  x = build.activation(head + "transform.act", x, bert.act);
  x = build.layer_norm(head + "transform.LayerNorm", x, bert.eps);
  if (config.flag("tie_word_embeddings")) {
    const std::string words = "bert.embeddings.word_embeddings.weight";
    model.tied = {{head + "decoder.weight", words}, {head + "decoder.bias", head + "bias"}};
    x = build.tied_linear("logits", x, words, head + "bias");
  } else {
    x = build.linear(head + "decoder", x, bert.vocab, bert.linear);
  }
  end_model(model, config, x);
  return model;
}

}  // namespace ds
