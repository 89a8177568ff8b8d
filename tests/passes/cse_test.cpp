#include "passes/cse.h"

#include <gtest/gtest.h>

#include "passes/precision.h"
#include "support/graphs.h"

namespace ds::test {
namespace {

TEST(Cse, MergesEqualNodesAndTheirConsumers) {
  Graph graph = parse_graph(
      "graph g n<=8\n"
      "input %x f32[n,4]\n"
      "%a = gelu %x -> f32[n,4]\n"
      "%b = gelu %x -> f32[n,4]\n"
      "%c = relu %a -> f32[n,4]\n"
      "%d = relu %b -> f32[n,4]\n"
      "%e = add %c %d -> f32[n,4]\n"
      "output e=%e d=%d\n");
  eliminate_common_subexpressions(graph);
  graph.check();
  EXPECT_EQ(graph.print(),
            "graph g n<=8\n"
            "  input %x f32[n,4]\n"
            "  %a = gelu %x -> f32[n,4]\n"
            "  %c = relu %a -> f32[n,4]\n"
            "  %e = add %c %c -> f32[n,4]\n"
            "  output e=%e d=%c\n");
}

// Two custom operations with the same name may have different callbacks.
TEST(Cse, KeepsCustomOperationsApart) {
  auto custom = [] {
    auto out = std::make_shared<CustomOp>();
    out->name = "own";
    out->outputs = "T[n,4]";
    return out;
  };
  Graph graph;
  ValueId x = graph.add_input("x", {DS_DTYPE_F32, {Dim::n(), 4}});
  auto once = custom();
  graph.add_output("a", graph.add_custom(once, {x}));
  graph.add_output("b", graph.add_custom(custom(), {x}));
  graph.add_output("c", graph.add_custom(once, {x}));
  eliminate_common_subexpressions(graph);
  graph.check();
  EXPECT_NE(graph.outputs[1].value, graph.outputs[0].value);
  EXPECT_EQ(graph.outputs[2].value, graph.outputs[0].value);
}

TEST(Cse, KeepsDifferentRandomStreamsAndAttributes) {
  Graph graph = parse_graph(
      "graph g n<=8\n"
      "input %x f32[n,4]\n"
      "%a = dropout %x {p=0.5 op=1} -> f32[n,4]\n"
      "%b = dropout %x {p=0.5 op=2} -> f32[n,4]\n"
      "%c = dropout %x {p=0.5 op=1} -> f32[n,4]\n"
      "output a=%a b=%b c=%c\n");
  eliminate_common_subexpressions(graph);
  graph.check();
  EXPECT_EQ(graph.nodes.size(), 2u);
  EXPECT_EQ(graph.outputs[2].value, graph.outputs[0].value);
  EXPECT_NE(graph.outputs[1].value, graph.outputs[0].value);
}

TEST(Cse, RemovesDeadNodesAndKeepsBackwardNodes) {
  Graph graph = two_layer_mlp();
  graph.add("relu", {graph.find_value("fc1")}, {}, "dead");
  differentiate(graph, graph.outputs[0].value);
  Graph clean = two_layer_mlp();
  differentiate(clean, clean.outputs[0].value);
  eliminate_common_subexpressions(graph);
  graph.check();
  EXPECT_EQ(graph.print(), clean.print());
  EXPECT_EQ(graph.backward_begin, clean.backward_begin);
}

TEST(Precision, SetsParametersInputsAndDependentValues) {
  Graph graph = two_layer_mlp();
  set_precision(graph, DS_DTYPE_BF16);
  graph.check();
  EXPECT_EQ(graph.type(graph.find_value("fc1.weight")).text(), "bf16[5,6]");
  EXPECT_EQ(graph.type(graph.find_value("fc2")).text(), "bf16[n,3]");
  EXPECT_EQ(graph.type(graph.outputs[0].value).text(), "f32[]");
  set_precision(graph, DS_DTYPE_F64);
  graph.check();
  EXPECT_EQ(graph.type(graph.outputs[0].value).text(), "f64[]");
  differentiate(graph, graph.outputs[0].value);
  graph.check();
}

TEST(Precision, DoesNotChangeTheTypeOfIds) {
  Graph graph = parse_graph(
      "graph g n<=8\n"
      "input %ids i32[n]\n"
      "param %w f32[9,4] = normal 0.02\n"
      "%x = embedding %w %ids -> f32[n,4]\n"
      "output x=%x\n");
  set_precision(graph, DS_DTYPE_BF16);
  graph.check();
  EXPECT_EQ(graph.type(graph.inputs[0]).text(), "i32[n]");
  EXPECT_EQ(graph.type(graph.outputs[0].value).text(), "bf16[n,4]");
}

}  // namespace
}  // namespace ds::test
