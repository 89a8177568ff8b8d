// Builds MixtralForCausalLM (Jiang et al., arXiv:2401.04088): Llama with a router and experts in
// place of the feed-forward layer.
//
// The result for a row is the sum over all experts of gate * expert(row). The gates are a softmax
// over the k largest logits of the router, and 0 for the other experts. Every expert processes all
// rows, and its result is multiplied by the gate. This keeps shapes fixed, but k of E experts cost
// as much as all E.
#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "nn/layers/layers.h"
#include "nn/models/decoder.h"
#include "nn/models/hf_families.h"
#include "nn/models/hf_options.h"
#include "nn/models/hf_rope.h"

namespace ds {
namespace {

// The largest number of experts in all layers together. It is bounded, since each expert has
// separate nodes.
constexpr int64_t kMostExperts = 4096;

// The sizes and options of a model.
struct Mixtral {
  Decoder decoder;
  int64_t experts, chosen;
  // The weight of the router loss; 0 leaves the loss out.
  double balance;
};

Mixtral read_mixtral(HfConfig& config) {
  Mixtral m;
  m.decoder = read_decoder(config);
  Decoder& d = m.decoder;
  d.act = read_activation(config, "hidden_act");
  d.rope = read_rope(config, d.width);
  d.windows = read_windows(config, d.layers);
  m.experts = config.size("num_local_experts");
  m.chosen = config.size("num_experts_per_tok");
  require(m.chosen <= m.experts,
          "key 'num_experts_per_tok' must be at most num_local_experts {}, got {}", m.experts,
          m.chosen);
  require(m.experts <= kMostExperts / d.layers,
          "key 'num_local_experts' must be at most {} for {} layers, got {}",
          kMostExperts / d.layers, d.layers, m.experts);
  const Json* weight = config.find("router_aux_loss_coef");
  // 0 is a valid coefficient, but positive() would refuse it.
  bool none = weight != nullptr && weight->is_number() && weight->number() == 0;
  m.balance = none ? 0 : config.positive("router_aux_loss_coef");
  if (!config.flag("output_router_logits")) m.balance = 0;
  return m;
}

// Adds a feed-forward layer like Llama's, with Mixtral's names.
ValueId expert(LayerBuilder& build, const Decoder& d, const std::string& name, ValueId x) {
  LinearOptions linear{d.stddev, false};
  ValueId gate = build.linear(name + ".w1", x, d.inner, linear);
  ValueId up = build.linear(name + ".w3", x, d.inner, linear);
  return build.linear(name + ".w2", build.gated(name + ".act", {gate, up}, d.act), d.hidden,
                      linear);
}

// Returns the sum of the experts' weighted results, and appends the router's logits to `routers`.
ValueId mixture(Graph& graph, LayerBuilder& build, const Mixtral& m, const std::string& name,
                ValueId x, std::vector<ValueId>& routers) {
  ValueId logits = build.linear(name + ".gate", x, m.experts, {m.decoder.stddev, false});
  routers.push_back(logits);
  ValueId gates = graph.add("top_gates", {logits}, {{"k", m.chosen}}, name + ".gates");
  ValueId sum;
  for (int64_t e = 0; e < m.experts; ++e) {
    std::string part = fmt::format("{}.experts.{}", name, e);
    ValueId y = expert(build, m.decoder, part, x);
    y = graph.add("scale_rows", {y, gates}, {{"column", e}}, part + ".weighted");
    // Adding the results in the order of the experts fixes the rounding of the sum.
    sum = !sum.exists() ? y : build.add(part + ".sum", sum, y);
  }
  return sum;
}

}  // namespace

HfModel build_mixtral(HfConfig& config, int64_t bound, int64_t seq) {
  Mixtral m = read_mixtral(config);
  Decoder& d = m.decoder;
  HfModel model = begin_model(config, bound);
  d.mask = model.graph.find_value("mask");
  // Padding rows must not count in the router loss, so the loss reads `counted` or the mask.
  ValueId counted = m.balance > 0 && config.padded() ? add_ids(model, "counted") : d.mask;
  Graph& graph = model.graph;
  LayerBuilder build(graph, documents_of(model));
  std::vector<ValueId> routers;
  ValueId x = decoder_embedding(model, build, d);
  for (int64_t i = 0; i < d.layers; ++i) {
    std::string name = fmt::format("model.layers.{}", i);
    x = attention_branch(build, d, name, i, x, seq);
    ValueId h = decoder_norm(build, d, name + ".post_attention_layernorm", x);
    h = mixture(graph, build, m, name + ".block_sparse_moe", h, routers);
    x = build.add(name + ".block_sparse_moe.residual", x, h);
  }
  ValueId logits = decoder_logits(model, build, config, d, x);
  ValueId balance;
  if (m.balance > 0) {
    if (counted.exists()) routers.push_back(counted);
    balance = graph.add("load_balance", routers, {{"k", m.chosen}}, "balance");
    balance = graph.add("scale", {balance}, {{"factor", m.balance}}, "balance.weighted");
  }
  end_model(model, config, logits, balance);
  return model;
}

}  // namespace ds
