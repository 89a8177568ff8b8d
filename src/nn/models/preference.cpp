#include "nn/models/preference.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/graph/ops.h"

namespace ds {
namespace {

class Pairs {
 public:
  Pairs(Graph& graph, const PairLoss& loss, int64_t sequence)
      : graph_(graph), loss_(loss), sequence_(sequence) {}

  // Appends all nodes again, with those of the preference after the cross-entropy.
  void run() {
    const IdVector<NodeId, Node> nodes = std::exchange(graph_.nodes, {});
    for (const Node& node : nodes) {
      if (node.op == "cross_entropy") {
        prefer(node);
      } else {
        keep(node);
      }
    }
    ensure(rewards_.exists(), "graph '{}' has no cross_entropy", graph_.name);
    graph_.add_output("rewards", rewards_);
  }

 private:
  void keep(Node node) {
    for (ValueId out : node.out) graph_.values[out].producer = graph_.nodes.past();
    graph_.nodes.push_back(std::move(node));
  }

  ValueId value(const std::string& name, TensorType type) {
    return graph_.append_value({unique_name(graph_, name), std::move(type), {}});
  }

  void prefer(Node node) {
    const ValueId result = node.out[0], logits = node.in[0], targets = node.in[1];
    const std::string name = graph_.values[result].name;
    const Shape rows = graph_.type(targets).shape;
    node.attrs.set("reduction", std::string("none"));
    node.out[0] = value(name + ".tokens", {DS_DTYPE_F32, rows});
    std::vector<ValueId> in{node.out[0], targets};
    keep(std::move(node));
    if (loss_.referred) in.push_back(graph_.add_input(kReferenceInput, {DS_DTYPE_F32, rows}));
    if (loss_.nll == 0) {
      rewards_ = value("rewards", {DS_DTYPE_F32, {4}});
      return keep({"preference_loss", std::move(in), {result, rewards_}, attrs()});
    }
    const ValueId pairs =
        graph_.add("preference_loss", in, attrs(), unique_name(graph_, name + ".pairs"));
    rewards_ = pairs + 1;
    const ValueId chosen =
        graph_.add_input(loss_.nll_of_all ? kChosenTokens : kChosenTargets, {DS_DTYPE_I32, rows});
    const ValueId mean =
        graph_.add("cross_entropy", {logits, chosen}, {}, unique_name(graph_, name + ".chosen"));
    const ValueId weighted = graph_.add("scale", {mean}, {{"factor", loss_.nll}},
                                        unique_name(graph_, name + ".chosen_weighted"));
    keep({"add", {pairs, weighted}, {result}, {}});
  }

  Attrs attrs() const {
    return {{"rows", sequence_},
            {"loss", loss_.loss},
            {"beta", loss_.beta},
            {"label_smoothing", loss_.label_smoothing},
            {"margin", loss_.margin}};
  }

  Graph& graph_;
  const PairLoss& loss_;
  const int64_t sequence_;
  ValueId rewards_;
};

}  // namespace

void prefer_pairs(HfModel& model, const PairLoss& loss, int64_t sequence) {
  if (!model.causal) {
    raise(DS_ERROR_UNSUPPORTED,
          "preference training needs a model that predicts the next token; family {} predicts "
          "masked tokens",
          model.family);
  }
  Pairs(model.graph, loss, sequence).run();
}

}  // namespace ds
