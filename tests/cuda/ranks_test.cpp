// Behaviour that instruction cases cannot express: sums over ranks for groups, values of parameter
// groups, refusals, and launches without barriers.
#include <gtest/gtest.h>

#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/lane/launcher.h"
#include "kernels/cuda/kernel.h"
#include "kernels/cuda/tree_sum.h"
#include "kernels/ref/ref.h"
#include "support/conformance.h"

namespace ds::test {
namespace {

TEST(Ranks, TreeSumHasTheOrderOfAReduction) {
  for (size_t ranks : {1, 2, 3, 5, 6, 7, 8, 13, 32, 63, 64}) {
    for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
      for (int64_t count : {1, 37, 2056}) {
        std::vector<Tensor> parts;
        std::vector<const void*> addresses;
        for (size_t r = 0; r < ranks; ++r) {
          Tensor x = random_tensor(DS_DTYPE_F32, {count}, 3 + r);
          for (int64_t e = 0; e < count; ++e)
            x.set(e, x.at(e) * (1 + 0.013 * static_cast<double>(r)));
          parts.push_back(x.as(dtype));
        }
        for (const Tensor& part : parts) addresses.push_back(part.view().data);
        Tensor sum(dtype, {count}), want(dtype, {count});
        lane::LaneLauncher launcher(1);
        cuda::tree_sum(launcher, addresses, dtype, sum.view());
        for (int64_t e = 0; e < count; ++e) {
          std::vector<float> x;
          for (const Tensor& part : parts) x.push_back(static_cast<float>(part.at(e)));
          want.set(e, static_cast<double>(ref::tree_sum(x)));
        }
        EXPECT_TRUE(sum == want) << ranks << " ranks, " << count << " " << dtype_name(dtype);
      }
    }
  }
}

TEST(Ranks, TreeSumRefusesTooManyRanks) {
  std::vector<const void*> parts(65);
  Tensor out(DS_DTYPE_F32, {1});
  lane::LaneLauncher launcher(0);
  EXPECT_THROW(cuda::tree_sum(launcher, parts, DS_DTYPE_F32, out.view()), Error);
}

// Each run of an update uses the values of its parameter group and its own number of missed
// updates. Operands may begin at any address.
TEST(Updates, RunsUseTheValuesOfTheirGroup) {
  KernelRegistry ref;
  register_ref(ref);
  ThreadTeam team(1);
  StepScalars step;
  step.updates = 9, step.grad_scale = 0.5;
  step.group = {.lr = 1, .beta1 = 0.1, .beta2 = 0.2};
  const GroupScalars group{
      .lr = 3e-4, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
  const RunScalars run{4, 0, 0, &group};
  constexpr int64_t kFirst = 3, kCount = 40;
  const Attrs attrs{{"l2", int64_t{0}}};
  auto operands = [] {
    std::vector<Tensor> all;
    for (uint64_t k = 0; k < 5; ++k)
      all.push_back(random_tensor(DS_DTYPE_F32, {kFirst + kCount}, 5 + k));
    for (int64_t e = 0; e < all[3].numel(); ++e) all[3].set(e, all[3].at(e) * all[3].at(e));
    return all;
  };
  auto slices = [](const std::vector<Tensor>& all) {
    std::vector<TensorView> views;
    for (const Tensor& tensor : all) {
      TensorView view = tensor.view();
      view.data = view.as<float>() + kFirst;
      view.dims[0] = kCount;
      views.push_back(view);
    }
    return views;
  };
  std::vector<Tensor> want = operands(), got = operands();
  std::vector<TensorView> w = slices(want), g = slices(got);
  const StepScalars own = scalars_of(step, run);
  implementation(ref, "adamw", "ref")
      .run({std::span(w).first(1), std::span(w).subspan(1), attrs, own, 0, team});
  std::span<const TensorView> in = std::span(g).first(1), out = std::span(g).subspan(1);
  auto kernel = cuda::make_kernel({"adamw", in, out, attrs}, nullptr);
  ASSERT_TRUE(kernel);
  std::vector<std::byte> scratch(static_cast<size_t>(kernel->scratch_bytes()));
  lane::LaneLauncher launcher(0);
  kernel->run(launcher, {in, out, &step, 0, {4, 0, 0}, group, {}, scratch.data()});
  EXPECT_TRUE(got == want);
}

TEST(Refusals, NameTheOperationAndItsTypes) {
  std::string refusal;
  const Attrs none;
  Tensor x(DS_DTYPE_F64, {4});
  std::vector<TensorView> views{x.view()};
  EXPECT_FALSE(cuda::make_kernel({"pack_top", views, views, none}, &refusal));
  EXPECT_EQ(refusal, "the device has no kernel for it");
  EXPECT_FALSE(cuda::make_kernel({"relu", views, views, none}, &refusal));
  EXPECT_EQ(refusal, "operand 0 is f64, but the device's kernels support f32, bf16 and f16");
}

TEST(Refusals, LanesNameAMissingEntry) {
  lane::LaneLauncher launcher(0);
  int args = 0;
  EXPECT_THROW(launcher.launch({"nothing", {}, {}, 0, &args, sizeof args}), std::runtime_error);
  EXPECT_THROW(launcher.launch({"add", {}, {}, 0, &args, sizeof args}), std::runtime_error);
}

}  // namespace
}  // namespace ds::test
