#include "compile/lower.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/base/error.h"
#include "support/models.h"
#include "zero/policy.h"

namespace ds {
namespace {

// Returns a graph in which the rows of one head with four columns attend to a cache. `reader` may
// add another node that reads the cache.
Graph cached(const char* reader) {
  std::string text =
      "graph g n<=2\n"
      "input %qkv f32[n,12]\n"
      "input %places i32[n]\n"
      "input %cache f32[2,8,4]\n"
      "%y %new = cached_attention %qkv %places %cache {heads=1} -> f32[n,4] f32[2,8,4]\n";
  return parse_graph(text + reader);
}

// Returns, in order, how instructions access the cache's input buffer.
std::vector<Access> accesses(const Graph& graph) {
  Config config = test::make_config(0, 1, 1);
  ZeroPlan zero = make_zero_plan(config, {}, 0, 1, {}, false);
  std::vector<BufferId> inputs;
  for (ValueId in : graph.inputs) {
    const Value& value = graph.values[in];
    inputs.push_back(zero.memory.add(Holds::input, value.name, value.type.dtype,
                                     value.type.shape.numel(2), Tier::device));
  }
  std::vector<std::pair<ValueId, BufferId>> wanted;
  for (const auto& [name, out] : graph.outputs) {
    const TensorType& type = graph.type(out);
    wanted.emplace_back(
        out, zero.memory.add(Holds::result, "out", type.dtype, type.shape.numel(2), Tier::device));
  }
  StepBuffers buffers;
  ProgramBuilder builder = begin_program(zero, "decode", 2, buffers);
  Lowering(graph, zero, inputs, builder, buffers).evaluate(Phase::decode, wanted);
  std::vector<Access> out;
  for (const Instr& instr : builder.take().instrs) {
    for (const Operand& operand : instr.operands) {
      if (operand.buffer == inputs[2]) out.push_back(operand.access);
    }
  }
  return out;
}

TEST(Lowering, UpdatesAnInputInPlaceWhenNothingElseReadsIt) {
  std::vector<Access> alone = accesses(cached("output y=%y\n"));
  EXPECT_EQ(alone, (std::vector{Access::read, Access::update}));
  std::vector<Access> shared =
      accesses(cached("%z = relu %cache -> f32[2,8,4]\noutput y=%y z=%z\n"));
  EXPECT_EQ(shared, (std::vector{Access::read, Access::read}));
}

}  // namespace
}  // namespace ds
