// Warm kernels do not allocate memory: this program replaces operator new to count allocations.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "support/conformance.h"

namespace {
thread_local int64_t allocations = 0;
}  // namespace

void* operator new(size_t bytes) {
  ++allocations;
  if (void* p = std::malloc(bytes ? bytes : 1)) return p;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes ? bytes : 1);
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace ds::test {
namespace {

// Returns the number of allocations in one launch of `impl` on this thread, after one launch to
// warm up.
int64_t allocations_of(const KernelImpl& impl, const OpCase& c, DType dtype, ThreadTeam& team) {
  std::vector<Tensor> in, out;
  std::vector<DType> types = input_types(c, dtype);
  for (size_t i = 0; i < c.in.size(); ++i) in.push_back(c.in[i].as(types[i]));
  for (const TensorType& type : output_types(c, dtype)) out.emplace_back(type, 0);
  std::vector<TensorView> in_views, out_views;
  for (const Tensor& t : in) in_views.push_back(t.view());
  for (const Tensor& t : out) out_views.push_back(t.view());
  launch(impl, c.attrs, in_views, out_views, team);
  int64_t before = allocations;
  launch(impl, c.attrs, in_views, out_views, team);
  return allocations - before;
}

TEST(CpuAllocation, TheCounterCountsAnAllocation) {
  int64_t before = allocations;
  std::make_unique<int>(1);
  EXPECT_EQ(allocations - before, 1);
}

TEST(CpuAllocation, WarmKernelsDoNotAllocate) {
  KernelRegistry registry;
  register_cpu(registry);
  for (int threads : {1, 2}) {
    ThreadTeam team(threads);
    for (const OpCase& c : large_op_cases()) {
      for (const KernelImpl& impl : registry.all()) {
        if (impl.op != c.op || !refusal(impl, c, DS_DTYPE_BF16).empty()) continue;
        EXPECT_EQ(allocations_of(impl, c, DS_DTYPE_BF16, team), 0) << c.label();
      }
    }
  }
}

}  // namespace
}  // namespace ds::test
