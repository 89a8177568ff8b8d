#include "passes/precision.h"

#include <gtest/gtest.h>

#include "core/graph/ops.h"
#include "support/graphs.h"

namespace ds::test {
namespace {

// Matrix products run in bf16, norms and losses in f32, and a sum of both types in f32. One cast
// serves every reader of its result.
TEST(Autocast, CastsWhereAnOperationNeedsAnotherType) {
  Graph graph = parse_graph(
      "graph g n<=8\n"
      "input %x f32[n,4]\n"
      "input %t i32[n]\n"
      "param %w f32[4,4] = normal 0.02\n"
      "param %s f32[4] = ones\n"
      "%a = linear %x %w -> f32[n,4]\n"
      "%b = linear %x %w %s -> f32[n,4]\n"
      "%c = gelu %a -> f32[n,4]\n"
      "%d = add %c %b -> f32[n,4]\n"
      "%e = add %d %x -> f32[n,4]\n"
      "%f %f.1 = rms_norm %d %s {eps=1e-05} -> f32[n,4] f32[n,1]\n"
      "%g %g.1 = cross_entropy %b %t -> f32[] f32[n,2]\n"
      "output loss=%g f=%f e=%e\n");
  autocast(graph, DS_DTYPE_BF16);
  graph.check();
  auto type = [&](const char* name) {
    return dtype_name(graph.type(graph.find_value(name)).dtype);
  };
  for (const char* low : {"a", "b", "c", "d", "x.bf16", "w.bf16", "s.bf16"})
    EXPECT_STREQ(type(low), "bf16") << low;
  for (const char* f32 : {"x", "w", "s", "e", "f", "g", "d.f32", "b.f32"})
    EXPECT_STREQ(type(f32), "f32") << f32;
  int64_t casts = 0;
  for (const Node& node : graph.nodes) casts += node.op == "cast" ? 1 : 0;
  EXPECT_EQ(casts, 5);
  differentiate(graph, graph.outputs[0].value);
  graph.check();
  EXPECT_EQ(graph.type(graph.params[ParamId(0)].grad).dtype, DS_DTYPE_F32);
}

TEST(Precision, InputsThatAreOnlyComparedWithLossesStayInF32) {
  Graph graph = parse_graph(
      "graph g n<=8\n"
      "input %x f32[n,4]\n"
      "input %t i32[n]\n"
      "input %r f32[n]\n"
      "param %w f32[4,4] = normal 0.02\n"
      "%a = linear %x %w -> f32[n,4]\n"
      "%b %b.1 = cross_entropy %a %t {reduction=\"none\"} -> f32[n] f32[n,2]\n"
      "%c %c.1 = preference_loss %b %t %r {rows=2} -> f32[] f32[4]\n"
      "output loss=%c\n");
  set_precision(graph, DS_DTYPE_BF16);
  graph.check();
  auto type = [&](const char* name) {
    return dtype_name(graph.type(graph.find_value(name)).dtype);
  };
  for (const char* low : {"x", "w", "a"}) EXPECT_STREQ(type(low), "bf16") << low;
  for (const char* f32 : {"r", "b", "c"}) EXPECT_STREQ(type(f32), "f32") << f32;
}

TEST(ScaleLoss, MarksTheBackwardSeedAsScaled) {
  Graph graph = parse_graph(
      "graph g n<=8\n"
      "input %x f32[n,4]\n"
      "input %t i32[n]\n"
      "param %w f32[4,4] = normal 0.02\n"
      "%b = linear %x %w -> f32[n,4]\n"
      "%g %g.1 = cross_entropy %b %t -> f32[] f32[n,2]\n"
      "output loss=%g\n");
  // The graph has no backward part yet, so this changes nothing.
  scale_loss(graph);
  differentiate(graph, graph.outputs[0].value);
  scale_loss(graph);
  EXPECT_EQ(graph.nodes[graph.backward_begin].op, "fill");
  EXPECT_EQ(graph.nodes[graph.backward_begin].attrs.integer("loss_scale"), 1);
  graph.check();
}

}  // namespace
}  // namespace ds::test
