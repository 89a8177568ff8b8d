#include "nn/models/gpt.h"

#include <fmt/core.h>

#include <cmath>
#include <string>

#include "core/base/error.h"
#include "nn/layers/layers.h"

namespace ds {
namespace {

constexpr double kStddev = 0.02;

void check_config(const ModelConfig& config, int64_t bound, int64_t seq) {
  require(config.layers >= 1, "model.layers must be at least 1, got {}", config.layers);
  require(config.heads >= 1 && config.hidden >= 1 && config.hidden % config.heads == 0,
          "model.hidden must be a multiple of model.heads {}, got {}", config.heads, config.hidden);
  require(config.vocab >= 2, "model.vocab must be at least 2, got {}", config.vocab);
  require(config.dropout >= 0 && config.dropout < 1, "model.dropout must be in [0, 1), got {}",
          config.dropout);
  require(config.layerdrop >= 0 && config.layerdrop < 1,
          "model.layerdrop must be in [0, 1), got {}", config.layerdrop);
  require(seq >= 1 && seq <= config.positions,
          "sequence must be from 1 to model.positions {}, got {}", config.positions, seq);
  require(bound >= 1, "bound must be at least 1, got {}", bound);
}

// Returns x + dropout(branch).
ValueId residual(Graph& graph, LayerBuilder& build, const std::string& name, ValueId x,
                 ValueId branch, double p) {
  branch = build.dropout(name + ".dropout", branch, p);
  return graph.add("add", {x, branch}, {}, name + ".residual");
}

// Adds one layer. Each of the 2 * layers branches adds to the residual stream, so their last
// projections start smaller by a factor of 1 / sqrt(2 layers). This keeps the variance of the
// stream from growing with the number of layers.
ValueId block(Graph& graph, LayerBuilder& build, const std::string& name, ValueId x,
              const ModelConfig& config, int64_t seq) {
  double branch_stddev = kStddev / std::sqrt(2.0 * static_cast<double>(config.layers));
  ValueId h = build.layer_norm(name + ".ln_1", x);
  h = build.linear(name + ".attn.qkv", h, 3 * config.hidden, {kStddev});
  h = build.attention(name + ".attn", {h}, {config.heads, config.heads, seq});
  h = build.linear(name + ".attn.proj", h, config.hidden, {branch_stddev});
  x = residual(graph, build, name + ".attn", x, h, config.dropout);
  h = build.layer_norm(name + ".ln_2", x);
  h = build.linear(name + ".mlp.fc", h, 4 * config.hidden, {kStddev});
  h = graph.add("gelu", {h}, {}, name + ".mlp.gelu");
  h = build.linear(name + ".mlp.proj", h, config.hidden, {branch_stddev});
  return residual(graph, build, name + ".mlp", x, h, config.dropout);
}

}  // namespace

Graph build_gpt(const ModelConfig& config, int64_t bound, int64_t seq) {
  check_config(config, bound, seq);
  Graph graph;
  graph.name = "gpt";
  graph.bound = bound;
  auto ids = [&](const char* name) { return graph.add_input(name, {DS_DTYPE_I32, {Dim::n()}}); };
  ValueId tokens = ids("tokens"), targets = ids("targets");
  Documents documents;
  if (config.documents) documents = {ids("begin"), ids("positions")};
  LayerBuilder build(graph, documents);
  ValueId x = build.embedding("wte", tokens, config.vocab, config.hidden, kStddev);
  x = build.position("wpe", x, config.positions, seq, kStddev);
  x = build.dropout("dropout", x, config.dropout);
  for (int64_t i = 0; i < config.layers; ++i) {
    std::string name = fmt::format("h.{}", i);
    x = build.layerdrop(name + ".layerdrop", x, block(graph, build, name, x, config, seq),
                        config.layerdrop);
  }
  x = build.layer_norm("ln_f", x);
  ValueId logits = build.tied_linear("logits", x, "wte.weight");
  graph.add_output("loss", graph.add("cross_entropy", {logits, targets}, {}, "loss"));
  graph.add_output("logits", logits);
  return graph;
}

}  // namespace ds
