#include <gtest/gtest.h>

#include "core/base/error.h"
#include "support/graphs.h"

namespace ds::test {
namespace {

void expect_equal(const Graph& a, const Graph& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.bound, b.bound);
  EXPECT_EQ(a.backward_begin, b.backward_begin);
  EXPECT_EQ(a.inputs, b.inputs);
  EXPECT_EQ(a.outputs, b.outputs);
  EXPECT_EQ(a.nodes, b.nodes);
  ASSERT_EQ(a.values.size(), b.values.size());
  for (size_t i = 0; i < a.values.size(); ++i) {
    EXPECT_EQ(a.values[i].name, b.values[i].name);
    EXPECT_EQ(a.values[i].type, b.values[i].type);
    EXPECT_EQ(a.values[i].producer, b.values[i].producer);
  }
  ASSERT_EQ(a.params.size(), b.params.size());
  for (size_t i = 0; i < a.params.size(); ++i) {
    EXPECT_EQ(a.params[i].name, b.params[i].name);
    EXPECT_EQ(a.params[i].value, b.params[i].value);
    EXPECT_EQ(a.params[i].init, b.params[i].init);
    EXPECT_EQ(a.params[i].grad, b.params[i].grad);
  }
}

std::string error_of(std::string_view text) {
  try {
    parse_graph(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), DS_ERROR_INVALID_ARGUMENT);
    return error.what();
  }
  return "parsed";
}

TEST(GraphText, PrintsTheDocumentedForm) {
  Graph graph;
  graph.name = "tiny";
  graph.bound = 64;
  ValueId x = graph.add_input("x", {DS_DTYPE_BF16, {Dim::n(), 8}});
  ValueId w = graph.add_param("w", {DS_DTYPE_BF16, {4, 8}}, {"normal", 0.02});
  ValueId y = graph.add("linear", {x, w}, {}, "y");
  graph.add_output("dropped", graph.add("dropout", {y}, {{"p", 0.5}, {"op", int64_t{3}}}, "z"));
  EXPECT_EQ(graph.print(),
            "graph tiny n<=64\n"
            "  input %x bf16[n,8]\n"
            "  param %w bf16[4,8] = normal 0.02\n"
            "  %y = linear %x %w -> bf16[n,4]\n"
            "  %z = dropout %y {p=0.5 op=3} -> bf16[n,4]\n"
            "  output dropped=%z\n");
}

TEST(GraphText, RoundTripsForwardAndBackward) {
  Graph graph = two_layer_mlp();
  expect_equal(parse_graph(graph.print()), graph);
  differentiate(graph, graph.outputs[0].value);
  EXPECT_TRUE(graph.backward_begin.exists());
  expect_equal(parse_graph(graph.print()), graph);
  EXPECT_EQ(parse_graph(graph.print()).print(), graph.print());
}

TEST(GraphText, AcceptsCommentsAndBlankLines) {
  Graph graph = parse_graph(
      "; a comment\n\ngraph g n<=4 ; here\n  input %x f32[n,2]   ; and here\n\n  output x=%x");
  EXPECT_EQ(graph.bound, 4);
  EXPECT_EQ(graph.outputs.size(), 1u);
}

TEST(GraphText, ShowsCustomOpsButCannotReadThem) {
  auto custom = std::make_shared<CustomOp>();
  custom->name = "own";
  custom->outputs = "T[n,2] f32[]";
  custom->has_backward = true;
  Graph graph;
  ValueId x = graph.add_input("x", {DS_DTYPE_BF16, {Dim::n(), 2}});
  ValueId w = graph.add_param("w", {DS_DTYPE_BF16, {2, 2}}, {});
  ValueId y = graph.add_custom(custom, {x, w});
  graph.add_output("loss", y + 1);
  differentiate(graph, y + 1);
  graph.check();
  EXPECT_EQ(graph.print(),
            "graph graph n<=1\n"
            "  input %x bf16[n,2]\n"
            "  param %w bf16[2,2] = zeros grad %d.w\n"
            "  %own.0 %own.0.1 = custom %x %w {name=\"own\" outputs=\"T[n,2] f32[]\"} -> bf16[n,2] "
            "f32[]\n"
            "  backward\n"
            "  %d.own.0.1 = fill {value=1.0 dtype=\"f32\"} -> f32[]\n"
            "  %d.w = custom_dx %x %w %own.0 %own.0.1 %d.own.0.1 {name=\"own\" wanted=\"01\" "
            "given=\"01\"} -> bf16[2,2]\n"
            "  output loss=%own.0.1\n");
  EXPECT_EQ(error_of(graph.print()),
            "graph text line 4: operation 'own' is a callback of the program that wrote this text, "
            "and a text has no callbacks");
  graph.nodes.back().custom = nullptr;
  EXPECT_THROW(graph.check(), Error);
}

TEST(GraphText, RefusalsNameLineAndFault) {
  const std::string head = "graph g n<=4\ninput %x f32[n,2]\n";
  EXPECT_EQ(error_of("input %x f32[n]"),
            "graph text line 1: the first line must be 'graph NAME n<=BOUND', and no other line "
            "may begin with 'graph', got a line that begins with 'input'");
  EXPECT_EQ(error_of(head + "%y = gelo %x -> f32[n,2]"),
            "graph text line 3: op 'gelo' is not known; did you mean 'gelu'?");
  EXPECT_EQ(error_of(head + "%y = gelu %z -> f32[n,2]"),
            "graph text line 3: value %z is not defined");
  EXPECT_EQ(error_of(head + "%y = gelu %x -> f32[n,3]"),
            "graph text line 3: gelu: output %y is f32[n,2], got f32[n,3]");
  EXPECT_EQ(error_of(head + "output %x"),
            "graph text line 3: output must be like name=%value, got '%x'");
  EXPECT_EQ(error_of(head + "output a=%x a=%x"),
            "graph text line 3: output name 'a' is already used by %x");
  EXPECT_EQ(error_of(head + "output =%x"), "graph text line 3: output name must not be empty");
  EXPECT_EQ(error_of(head + "%x = gelu %x -> f32[n,2]"), "value name 'x' is used twice");
  EXPECT_EQ(error_of(head + "frobnicate"),
            "graph text line 3: line must begin with input, param, %value, backward or output, got "
            "'frobnicate'");
}

}  // namespace
}  // namespace ds::test
