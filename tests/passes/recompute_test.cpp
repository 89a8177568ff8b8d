#include "passes/recompute.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "compile/pipeline.h"
#include "engine/engine.h"
#include "passes/cse.h"
#include "passes/rewrite.h"
#include "support/graphs.h"
#include "support/models.h"

namespace ds::test::recompute_test {
namespace {

constexpr int64_t kSeq = 8, kRows = 16, kVocab = 29;

Graph gpt() { return make_tiny_gpt(2, 24, 2, kVocab, kSeq, kRows, 0.1); }

int64_t count(const Graph& graph, const std::string& op) {
  return std::count_if(graph.nodes.begin(), graph.nodes.end(),
                       [&](const Node& n) { return n.op == op; });
}

TEST(Recompute, RecomputesCheapResultsIntoAValidGraph) {
  Graph graph = gpt();
  differentiate(graph, graph.outputs[0].value);
  eliminate_common_subexpressions(graph);
  int64_t gelu = count(graph, "gelu"), linear = count(graph, "linear");
  recompute_cheap(graph);
  graph.check();
  EXPECT_EQ(count(graph, "gelu"), 2 * gelu);
  EXPECT_EQ(count(graph, "linear"), linear) << "products are not cheap";
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (ValueId out : graph.nodes[i].out) {
      EXPECT_EQ(graph.values[out].producer, static_cast<NodeId>(i));
    }
  }
}

struct Trained {
  std::vector<double> losses;
  std::vector<std::vector<float>> masters;
  int64_t transient = 0;
  std::vector<std::string> notes;
};

Trained train(Config c, bool chaos) {
  auto comm = create_communicator("self", {});
  EngineOptions options;
  if (chaos) options.chaos_seed = 3;
  Engine engine(c, gpt(), *comm, options);
  std::vector<int32_t> tokens(kRows), targets(kRows);
  for (size_t i = 0; i < kRows; ++i) {
    tokens[i] = static_cast<int32_t>(i * 5 % kVocab);
    targets[i] = static_cast<int32_t>(i * 11 % kVocab);
  }
  std::vector<InputView> inputs{{tokens.data(), DS_DTYPE_I32, kRows},
                                {targets.data(), DS_DTYPE_I32, kRows}};
  Trained run;
  for (int s = 0; s < 4; ++s) run.losses.push_back(engine.train_batch(inputs).loss);
  for (size_t p = 0; p < engine.store().param_names().size(); ++p) {
    run.masters.push_back(engine.store().read_tensor(ParamId(p), "master"));
  }
  run.transient = engine.plan().step().arenas[0].transient;
  run.notes = engine.plan().notes;
  return run;
}

TEST(Recompute, HasTheSameBitsWithLessMemory) {
  for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
    Config c = make_config(0, 1, 1);
    c.compute = dtype;
    Trained kept = train(c, false);
    for (const char* way : {"cheap", "layers"}) {
      c.recompute = way;
      for (bool chaos : {false, true}) {
        Trained again = train(c, chaos);
        EXPECT_EQ(again.losses, kept.losses) << way;
        EXPECT_EQ(again.masters, kept.masters) << way;
        EXPECT_LT(again.transient, kept.transient) << way;
      }
    }
  }
}

TEST(Recompute, ATightBudgetTurnsRecomputationOn) {
  Config c = make_config(0, 1, 1);
  auto needs = [&](const char* way) {
    Config with = c;
    with.recompute = way;
    return compile_plan(gpt(), with, 0, 1, Machine{}).memory.total(Tier::device);
  };
  const int64_t cheap = needs("cheap"), layers = needs("layers");
  ASSERT_LT(layers + 512, cheap);
  for (const auto& [budget, note] :
       {std::pair{cheap + 512, "cheap activations are computed again"},
        {layers + 512, "activations of each layer are computed again"}}) {
    c.memory_budget.device = budget;
    Trained run = train(c, false);
    ASSERT_FALSE(run.notes.empty());
    EXPECT_NE(run.notes.back().find(note), std::string::npos);
  }
}

// With 4 layers in blocks of k, one activation of each block lives from forward to backward,
// besides the values outside the layers.
TEST(Recompute, LayersAreRecomputedInBlocks) {
  auto graph_of = [](int64_t k) {
    Graph graph = make_tiny_gpt(4, 24, 2, kVocab, kSeq, kRows, 0.1);
    differentiate(graph, graph.outputs[0].value);
    eliminate_common_subexpressions(graph);
    if (k > 0) recompute_layers(graph, k);
    graph.check();
    return graph;
  };
  // Counts the values of the forward part that the backward part reads, without parameters and
  // inputs.
  auto kept = [](const Graph& graph) {
    std::set<ValueId> out;
    for (NodeId i : IdRange(graph.backward_begin, graph.nodes.past())) {
      for (ValueId in : graph.nodes[i].in) {
        NodeId producer = graph.values[in].producer;
        if (producer.exists() && producer < graph.backward_begin) out.insert(in);
      }
    }
    return static_cast<int64_t>(out.size());
  };
  const Graph whole = graph_of(0);
  // In blocks of 4 layers there is one block, and one activation enters it.
  const int64_t outside = kept(graph_of(4)) - 1, all = kept(whole);
  EXPECT_GT(all, 40);
  for (auto [k, blocks] : {std::pair<int64_t, int64_t>{1, 4}, {2, 2}, {3, 2}, {4, 1}, {9, 1}}) {
    const Graph graph = graph_of(k);
    EXPECT_EQ(kept(graph), outside + blocks) << "in blocks of " << k;
    EXPECT_EQ(count(graph, "attention"), 2 * count(whole, "attention"));
    EXPECT_LT(count(graph, "linear"), 2 * count(whole, "linear"))
        << "what no gradient reads is not made again";
  }
}

TEST(Fusion, ActivationTimesValueIsGlu) {
  Graph graph = parse_graph(
      "graph g n<=8\n"
      "input %x f32[n,4]\n"
      "input %u f32[n,4]\n"
      "%a = silu %x -> f32[n,4]\n"
      "%b = mul %u %a -> f32[n,4]\n"
      "%c = gelu %x {form=\"erf\"} -> f32[n,4]\n"
      "%d = mul %c %u -> f32[n,4]\n"
      "%e = relu %x -> f32[n,4]\n"
      "%f = mul %e %u -> f32[n,4]\n"
      "output b=%b d=%d f=%f e=%e\n");
  rewrite(graph, gate_rules());
  eliminate_common_subexpressions(graph);
  graph.check();
  EXPECT_EQ(graph.print(),
            "graph g n<=8\n"
            "  input %x f32[n,4]\n"
            "  input %u f32[n,4]\n"
            "  %b = glu %x %u {act=\"silu\"} -> f32[n,4]\n"
            "  %d = glu %x %u {act=\"gelu_erf\"} -> f32[n,4]\n"
            "  %e = relu %x -> f32[n,4]\n"
            "  %f = mul %e %u -> f32[n,4]\n"
            "  output b=%b d=%d f=%f e=%e\n");
}

}  // namespace
}  // namespace ds::test::recompute_test
