// Compares every optimized kernel of every op with the f64 reference, and its bits on teams of 1, 2
// and 3 threads.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "support/conformance.h"

namespace ds::test {
namespace {

KernelRegistry optimized() {
  KernelRegistry registry;
  register_onednn(registry);
  register_cpu(registry);
  return registry;
}

std::vector<OpCase> all_cases() {
  std::vector<OpCase> cases = op_cases();
  for (OpCase& c : large_op_cases()) cases.push_back(std::move(c));
  return cases;
}

bool same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) { return a == b; }

TEST(Optimized, RoundsOnceInF32AndBf16) {
  KernelRegistry registry = optimized();
  ThreadTeam team(2);
  std::map<std::string, int> taken;
  for (const OpCase& c : all_cases()) {
    for (const KernelImpl& impl : registry.all()) {
      if (impl.op != c.op) continue;
      for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16}) {
        if (!refusal(impl, c, dtype).empty()) continue;
        ++taken[impl.name + " " + impl.op];
        Deviation d = deviation(impl, c, dtype, team);
        EXPECT_LT(d.error, kMostUnits)
            << impl.name << " " << c.label() << " " << dtype_name(dtype) << " " << d.where;
      }
    }
  }
  std::set<std::string> cases;
  for (const OpCase& c : all_cases()) cases.insert(c.op);
  for (const KernelImpl& impl : registry.all()) {
    // The case of cast is a cast to f64, which only the reference accepts.
    if (!cases.count(impl.op) || impl.op == "cast") continue;
    EXPECT_GT(taken[impl.name + " " + impl.op], 0) << impl.name << " " << impl.op;
  }
}

TEST(Optimized, BitsDoNotDependOnTheTeam) {
  KernelRegistry registry = optimized();
  ThreadTeam one(1), two(2), three(3);
  for (const OpCase& c : all_cases()) {
    for (const KernelImpl& impl : registry.all()) {
      if (impl.op != c.op) continue;
      for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16}) {
        if (!refusal(impl, c, dtype).empty()) continue;
        std::vector<Tensor> want = run_case(impl, c, dtype, one);
        EXPECT_TRUE(same(run_case(impl, c, dtype, two), want)) << impl.name << " " << c.label();
        EXPECT_TRUE(same(run_case(impl, c, dtype, three), want)) << impl.name << " " << c.label();
      }
    }
  }
}

TEST(Optimized, RefusesF64) {
  KernelRegistry registry = optimized();
  for (const OpCase& c : op_cases()) {
    for (const KernelImpl& impl : registry.all()) {
      if (impl.op != c.op || c.op == "fill") continue;
      EXPECT_NE(refusal(impl, c, DS_DTYPE_F64), "") << impl.name << " " << c.op;
    }
  }
}

TEST(Optimized, UpdateInstructionsEqualTheReference) {
  KernelRegistry registry = optimized(), reference;
  register_ref(reference);
  ThreadTeam two(2);
  for (const InstructionCase& c : instruction_cases()) {
    std::vector<Tensor> want = run_case(implementation(reference, c.op, "ref"), c, two);
    for (const KernelImpl& impl : registry.all()) {
      if (impl.op != c.op) continue;
      EXPECT_TRUE(same(run_case(impl, c, two), want)) << impl.name << " " << c.op;
    }
  }
}

}  // namespace
}  // namespace ds::test
