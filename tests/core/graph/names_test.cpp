// Values are found by name, even after passes have changed the names.
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/graph/graph.h"
#include "core/graph/ops.h"
#include "passes/cse.h"
#include "passes/recompute.h"
#include "support/errors.h"
#include "support/graphs.h"

namespace ds::test {
namespace {

void expect_found(const Graph& graph) {
  for (size_t i = 0; i < graph.values.size(); ++i) {
    EXPECT_EQ(graph.find_value(graph.values[i].name), static_cast<ValueId>(i))
        << graph.values[i].name;
  }
  EXPECT_EQ(graph.find_value("no such value"), none);
}

TEST(GraphNames, ValuesAreFoundAfterEveryPass) {
  Graph graph = two_layer_mlp();
  graph.add("relu", {graph.find_value("fc1")}, {}, "dead");
  expect_found(graph);
  differentiate(graph, graph.outputs[0].value);
  expect_found(graph);
  eliminate_common_subexpressions(graph);
  expect_found(graph);
  EXPECT_EQ(graph.find_value("dead"), none);
  recompute_cheap(graph);
  expect_found(graph);
  expect_found(parse_graph(graph.print()));
  Graph copy = graph;
  expect_found(copy);
}

TEST(GraphNames, ANameIsFreeAgainOnceItsValueIsRenamed) {
  Graph graph = two_layer_mlp();
  ValueId value = graph.find_value("fc1");
  graph.rename_value(value, "other");
  EXPECT_EQ(graph.find_value("fc1"), none);
  EXPECT_EQ(graph.find_value("other"), value);
  EXPECT_EQ(unique_name(graph, "fc1"), "fc1");
  EXPECT_EQ(unique_name(graph, "other"), "other.1");
  ValueId twin = graph.append_value({"other", graph.type(value), none});
  EXPECT_EQ(graph.find_value("other"), value);
  expect_names(message_of([&] { graph.check(); }, DS_ERROR_INVALID_ARGUMENT),
               {"'other' is used twice"});
  graph.rename_value(twin, "third");
  EXPECT_EQ(graph.find_value("other"), value);
}

}  // namespace
}  // namespace ds::test
