// Compares backward rules and f64 reference kernels with central finite differences.
#include "support/gradient.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/graph/ops.h"
#include "support/conformance.h"

namespace ds::test {
namespace {

TensorType type_of(const Tensor& tensor) {
  std::vector<Dim> dims(tensor.dims().begin(), tensor.dims().end());
  return {tensor.dtype(), Shape(std::move(dims))};
}

TEST(Gradient, EveryBackwardRuleMatchesFiniteDifferences) {
  KernelRegistry registry;
  register_ref(registry);
  ThreadTeam team(1);
  std::set<std::string> tested;
  for (const OpCase& c : op_cases()) {
    if (!op(c.op).backward) continue;
    tested.insert(c.op);
    Graph graph;
    std::vector<ValueId> in, wrt;
    for (size_t i = 0; i < c.in.size(); ++i) {
      in.push_back(graph.add_input("x" + std::to_string(i), type_of(c.in[i])));
      if (c.in[i].dtype() == DS_DTYPE_F64) wrt.push_back(in.back());
    }
    ValueId loss = graph.add(c.op, in, c.attrs, "y");
    ValueId target;
    if (graph.type(loss).shape.rank() > 0) {
      target = graph.add_input("target", graph.type(loss));
      loss = graph.add("mse", {loss, target}, {}, "loss");
    }
    std::vector<ValueId> grads;
    differentiate(graph, loss, wrt, &grads);
    graph.check();
    Interpreter run(graph, registry, team, 1);
    run.scalars.seed = 5;
    for (size_t i = 0; i < in.size(); ++i) run.set(in[i], c.in[i]);
    if (target.exists()) run.set(target, random_tensor(DS_DTYPE_F64, run.at(target).dims(), 77));
    for (size_t i = 0; i < wrt.size(); ++i) {
      // The norms that magnitudes are divided by count as constants, as in PEFT.
      if (c.op == "dora" && i == 3) {
        EXPECT_FALSE(grads[i].exists()) << c.label();
        continue;
      }
      ASSERT_TRUE(grads[i].exists()) << c.label();
      EXPECT_LT(gradient_error(run, graph, loss, wrt[i], grads[i]), 1e-7)
          << c.label() << " by operand " << i;
    }
  }
  for (const OpDef& row : op_table()) {
    EXPECT_TRUE(!row.backward || tested.count(row.name)) << row.name << " has no gradient case";
  }
}

}  // namespace
}  // namespace ds::test
