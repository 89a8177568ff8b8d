#include "nn/models/gpt.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "core/base/error.h"
#include "passes/cse.h"
#include "passes/precision.h"
#include "support/gradient.h"

namespace ds::test {
namespace {

ModelConfig tiny() {
  ModelConfig config;
  config.family = "gpt";
  config.layers = 2;
  config.hidden = 8;
  config.heads = 2;
  config.vocab = 13;
  config.positions = 6;
  return config;
}

class Gpt : public testing::Test {
 protected:
  void SetUp() override { register_ref(registry_); }
  // Sets inputs and parameters; n may be less than the bound.
  void prepare(Interpreter& run, const Graph& graph, int64_t n, int64_t vocab) {
    run.init_params(3);
    run.set(graph.find_value("tokens"), random_ids(n, vocab, 1));
    run.set(graph.find_value("targets"), random_ids(n, vocab, 2));
  }
  KernelRegistry registry_;
  ThreadTeam team_{1};
};

TEST_F(Gpt, ParametersAreNamedAndCounted) {
  Graph graph = build_gpt(tiny(), 16, 5);
  graph.check();
  int64_t c = 8, total = 0, layer = 12 * c * c + 13 * c;
  for (const Parameter& param : graph.params) total += graph.type(param.value).shape.numel(1);
  EXPECT_EQ(total, 13 * c + 6 * c + 2 * layer + 2 * c);
  EXPECT_EQ(graph.params[0].name, "wte.weight");
  ParamId qkv = graph.find_param("h.1.attn.qkv.weight"),
          proj = graph.find_param("h.0.mlp.proj.weight");
  ASSERT_TRUE(qkv.exists());
  ASSERT_TRUE(proj.exists());
  EXPECT_EQ(graph.type(graph.params[qkv].value).text(), "f32[24,8]");
  EXPECT_EQ(graph.params[proj].init, (Init{"normal", 0.01}));
  EXPECT_EQ(graph.type(graph.outputs[0].value).text(), "f32[]");
  EXPECT_EQ(graph.type(graph.outputs[1].value).text(), "f32[n,13]");
}

TEST_F(Gpt, TextRoundTripsWithBackward) {
  Graph graph = build_gpt(tiny(), 16, 5);
  differentiate(graph, graph.outputs[0].value);
  graph.check();
  EXPECT_EQ(parse_graph(graph.print()).print(), graph.print());
}

TEST_F(Gpt, LossAtInitializationEqualsThatOfAUniformGuess) {
  for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
    Graph graph = build_gpt(tiny(), 16, 5);
    set_precision(graph, dtype);
    Interpreter run(graph, registry_, team_, 13);
    prepare(run, graph, 13, 13);
    run.run();
    EXPECT_NEAR(run.at(graph.outputs[0].value).at(0), std::log(13.0), 0.05) << dtype_name(dtype);
  }
}

TEST_F(Gpt, EveryParametersGradientMatchesFiniteDifferences) {
  ModelConfig config = tiny();
  config.dropout = 0.2;
  config.layers = 3;
  config.layerdrop = 0.4;
  Graph graph = build_gpt(config, 16, 5);
  set_precision(graph, DS_DTYPE_F64);
  differentiate(graph, graph.outputs[0].value);
  eliminate_common_subexpressions(graph);
  graph.check();
  Interpreter run(graph, registry_, team_, 13);
  prepare(run, graph, 13, 13);
  for (const Parameter& param : graph.params) {
    ASSERT_TRUE(param.grad.exists()) << param.name;
    // The weights are larger than at initialization, so that gradients are not lost in rounding.
    Tensor& value = run.at(param.value);
    Tensor noise = random_tensor(DS_DTYPE_F64, value.dims(), param.value.index());
    for (int64_t e = 0; e < value.numel(); ++e) value.set(e, value.at(e) + 0.3 * noise.at(e));
  }
  // Counts layers that layerdrop leaves out.
  int left_out = 0;
  for (const Parameter& param : graph.params) {
    bool first = param.name.ends_with("ln_1.weight");
    Tensor& grad = run.at(param.grad);
    run.run();
    double sum = 0;
    for (int64_t e = 0; e < grad.numel(); ++e) sum += std::abs(grad.at(e));
    left_out += first && sum == 0;
    int64_t count = run.at(param.value).numel();
    EXPECT_LT(gradient_error(run, graph, graph.outputs[0].value, param.value, param.grad,
                             {0, count / 2, count - 1}),
              1e-6)
        << param.name;
  }
  EXPECT_GT(left_out, 0);
  EXPECT_LT(left_out, 3);
}

TEST_F(Gpt, SequencesSeeNeitherEachOtherNorTheFuture) {
  Graph graph = build_gpt(tiny(), 16, 4);
  Interpreter run(graph, registry_, team_, 10);
  prepare(run, graph, 10, 13);
  run.run();
  Tensor before = run.at(graph.outputs[1].value);
  Tensor& tokens = run.at(graph.find_value("tokens"));
  tokens.set(5, static_cast<double>((static_cast<int64_t>(tokens.at(5)) + 1) % 13));
  run.run();
  const Tensor& after = run.at(graph.outputs[1].value);
  for (int64_t row = 0; row < 10; ++row) {
    bool equal = true;
    for (int64_t v = 0; v < 13; ++v)
      equal = equal && before.at(row * 13 + v) == after.at(row * 13 + v);
    EXPECT_EQ(equal, row < 5 || row >= 8) << "row " << row;
  }
}

TEST_F(Gpt, EveryDropoutHasItsOwnStream) {
  ModelConfig config = tiny();
  config.dropout = 0.1;
  Graph graph = build_gpt(config, 16, 5);
  std::set<int64_t> streams;
  for (const Node& node : graph.nodes) {
    if (node.op != "dropout") continue;
    EXPECT_TRUE(streams.insert(node.attrs.integer("op")).second);
  }
  EXPECT_EQ(streams.size(), 5u);
}

TEST_F(Gpt, RefusalsNameSettingAndValue) {
  ModelConfig config = tiny();
  config.heads = 3;
  try {
    build_gpt(config, 16, 5);
    FAIL() << "8 is not a multiple of 3";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "model.hidden must be a multiple of model.heads 3, got 8");
  }
  EXPECT_THROW(build_gpt(tiny(), 16, 7), Error);
}

}  // namespace
}  // namespace ds::test
