#include <gtest/gtest.h>

#include <algorithm>

#include "core/base/error.h"
#include "support/gradient.h"
#include "support/graphs.h"

namespace ds::test {
namespace {

std::vector<std::string> backward_ops(const Graph& graph) {
  std::vector<std::string> ops;
  for (NodeId i : IdRange(graph.backward_begin, graph.nodes.past())) {
    ops.push_back(graph.nodes[i].op);
  }
  return ops;
}

TEST(Autodiff, EmitsOnlyTheGradientsThatParametersNeed) {
  Graph graph = two_layer_mlp();
  differentiate(graph, graph.outputs[0].value);
  graph.check();
  EXPECT_EQ(backward_ops(graph),
            (std::vector<std::string>{"fill", "mse_dx", "linear_dx", "linear_dw", "layer_norm_dx",
                                      "layer_norm_dw", "gelu_dx", "linear_dw", "linear_db"}));
  for (const Parameter& param : graph.params) {
    ASSERT_TRUE(param.grad.exists()) << param.name;
    EXPECT_EQ(graph.values[param.grad].name, "d." + param.name);
    EXPECT_EQ(graph.type(param.grad), graph.type(param.value));
  }
}

// Attributes of an op appear in its backward ops, except for default values, which are not written.
TEST(Autodiff, AttributesAppearInTheBackwardOps) {
  Graph graph;
  ValueId x = graph.add_param("x", {DS_DTYPE_F32, {4, 8}}, {"ones", 0});
  ValueId w = graph.add_param("w", {DS_DTYPE_F32, {8, 8}}, {"ones", 0});
  ValueId target = graph.add_input("t", {DS_DTYPE_F32, {4, 8}});
  ValueId y = graph.add("linear", {x, w}, {{"transposed", int64_t{1}}});
  y = graph.add("rope", {y}, {{"heads", int64_t{2}}, {"seq", int64_t{4}}, {"theta", 1e4}});
  y = graph.add("gelu", {y}, {{"form", "erf"}});
  graph.add_output("loss", graph.add("mse", {y, target}));
  differentiate(graph, graph.outputs[0].value);
  graph.check();
  EXPECT_EQ(backward_ops(graph), (std::vector<std::string>{"fill", "mse_dx", "gelu_dx", "rope",
                                                           "linear_dx", "linear_dw"}));
  NodeId first = graph.backward_begin;
  EXPECT_EQ(graph.nodes[first + 2].attrs.print(), "{form=\"erf\"}");
  EXPECT_EQ(graph.nodes[first + 3].attrs.print(), "{heads=2 seq=4 theta=10000.0 inverse=1}");
  EXPECT_EQ(graph.nodes[first + 4].attrs.print(), "{transposed=1}");
  EXPECT_EQ(graph.nodes[first + 5].attrs.print(), "{transposed=1}");
}

TEST(Autodiff, EveryInputOfAVariadicOpHasAGradient) {
  Graph graph;
  Dim n = Dim::n();
  std::vector<ValueId> logits;
  for (const char* name : {"a", "b", "c"})
    logits.push_back(graph.add_input(name, {DS_DTYPE_F32, {n, 4}}));
  graph.add_output("loss", graph.add("load_balance", logits, {{"k", int64_t{2}}}));
  std::vector<ValueId> grads;
  differentiate(graph, graph.outputs[0].value, logits, &grads);
  graph.check();
  EXPECT_EQ(backward_ops(graph), (std::vector<std::string>{"fill", "load_balance_dx"}));
  const char* names[] = {"d.a", "d.b", "d.c"};
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(graph.values[grads[i]].name, names[i]);
}

TEST(Autodiff, GradientsOfInputsAreComputedOnRequest) {
  Graph graph = two_layer_mlp();
  std::vector<ValueId> grads;
  differentiate(graph, graph.outputs[0].value, {graph.find_value("x"), graph.find_value("target")},
                &grads);
  graph.check();
  ASSERT_EQ(grads.size(), 2u);
  EXPECT_EQ(graph.type(grads[0]), graph.type(graph.find_value("x")));
  EXPECT_EQ(graph.type(grads[1]), graph.type(graph.find_value("target")));
}

TEST(Autodiff, SumsContributionsInOrderOfDecreasingConsumer) {
  Graph graph;
  TensorType type{DS_DTYPE_F64, {3, 4}};
  ValueId w = graph.add_param("w", type, {"ones", 0}), target = graph.add_input("t", type);
  ValueId a = graph.add("gelu", {w}, {}, "a"), b = graph.add("relu", {w}, {}, "b");
  ValueId s = graph.add("add", {graph.add("add", {a, b}, {}, "ab"), w}, {}, "abw");
  graph.add_output("loss", graph.add("mse", {s, target}, {}, "loss"));
  differentiate(graph, graph.outputs[0].value);
  graph.check();
  EXPECT_EQ(backward_ops(graph),
            (std::vector<std::string>{"fill", "mse_dx", "relu_dx", "add", "gelu_dx", "add"}));
  const Node& last = graph.nodes.back();
  EXPECT_EQ(last.out[0], graph.params[0].grad);
  // The gradient through gelu is added last.
  EXPECT_EQ(last.in[1], graph.nodes[graph.nodes.size() - 2].out[0]);
  KernelRegistry registry;
  register_ref(registry);
  ThreadTeam team(1);
  Interpreter run(graph, registry, team, 1);
  run.set(w, random_tensor(DS_DTYPE_F64, {3, 4}, 1));
  run.set(target, random_tensor(DS_DTYPE_F64, {3, 4}, 2));
  EXPECT_LT(gradient_error(run, graph, graph.outputs[0].value, w, graph.params[0].grad), 1e-7);
}

TEST(Autodiff, UnreachedParameterHasNoGradient) {
  Graph graph = two_layer_mlp();
  graph.add_param("unused", {DS_DTYPE_F32, {4}}, {});
  differentiate(graph, graph.outputs[0].value);
  EXPECT_FALSE(graph.params.back().grad.exists());
  // A graph can be differentiated only once.
  EXPECT_THROW(differentiate(graph, graph.outputs[0].value), Error);
}

TEST(Autodiff, RefusesNonScalarsAndSecondDerivatives) {
  Graph graph = two_layer_mlp();
  EXPECT_THROW(differentiate(graph, graph.find_value("fc1")), Error);
  Graph second;
  ValueId x = second.add_param("x", {DS_DTYPE_F32, {2, 2}}, {}),
          t = second.add_input("t", {DS_DTYPE_F32, {2, 2}});
  ValueId y = second.add("relu_dx", {x, x}, {}, "y");
  ValueId loss = second.add("mse", {y, t}, {}, "loss");
  try {
    differentiate(second, loss);
    FAIL() << "relu_dx has no gradient";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "op 'relu_dx' of value %y has no gradient");
  }
}

}  // namespace
}  // namespace ds::test
