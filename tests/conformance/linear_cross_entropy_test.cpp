// Tests the fused head over several blocks of the vocabulary, with every family of matrix products.
#include <gtest/gtest.h>

#include <cmath>

#include "support/conformance.h"

namespace ds::test {
namespace {

// The vocabulary has blocks of 704, 704 and 692 words.
constexpr int64_t kWords = 2100;

// Returns a case with targets at the edges of blocks and two rows without a target.
OpCase forward_case(int64_t rows, int64_t width) {
  Tensor targets = random_ids(rows, kWords, 3);
  const double places[] = {0, 703, -100, 704, 1407, 1408, 2099, -100};
  for (int64_t r = 0; r < std::min<int64_t>(rows, 8); ++r) targets.set(r, places[r]);
  return {"linear_cross_entropy",
          {},
          {random_tensor(DS_DTYPE_F64, {rows, width}, 1),
           random_tensor(DS_DTYPE_F64, {kWords, width}, 2), targets}};
}

OpCase backward_of(const OpCase& forward) {
  KernelRegistry reference;
  register_ref(reference);
  ThreadTeam team(1);
  std::vector<Tensor> y =
      run_case(implementation(reference, forward.op, "ref"), forward, DS_DTYPE_F64, team);
  std::vector<Tensor> in{random_tensor(DS_DTYPE_F64, {}, 4), forward.in[0], forward.in[1],
                         forward.in[2], y[1]};
  return {"linear_cross_entropy_dx", {}, in};
}

// Returns the forward case and its backward case.
std::vector<OpCase> both_cases(OpCase forward) {
  OpCase backward = backward_of(forward);
  return {std::move(forward), std::move(backward)};
}

void for_each_run(const std::function<void(const KernelImpl&, const OpCase&, DType)>& f) {
  KernelRegistry registry = built_in_kernels();
  for (auto [rows, width] : {std::pair<int64_t, int64_t>{70, 40}, {5, 33}, {1, 1}}) {
    for (const OpCase& c : both_cases(forward_case(rows, width))) {
      for (const KernelImpl& impl : registry.all()) {
        if (impl.op != c.op) continue;
        for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16}) {
          if (refusal(impl, c, dtype).empty()) f(impl, c, dtype);
        }
      }
    }
  }
}

TEST(LinearCrossEntropy, BlocksAreJoined) {
  ThreadTeam team(2);
  int runs = 0;
  for_each_run([&](const KernelImpl& impl, const OpCase& c, DType dtype) {
    Deviation d = deviation(impl, c, dtype, team);
    EXPECT_LT(d.error, kMostUnits)
        << impl.name << " " << c.label() << " " << dtype_name(dtype) << " " << d.where;
    ++runs;
  });
  EXPECT_GE(runs, 3 * 2 * 5) << "f32 by onednn, cpu and ref, bf16 by cpu and ref";
}

TEST(LinearCrossEntropy, BitsDoNotDependOnTheTeam) {
  ThreadTeam one(1), two(2), three(3);
  for_each_run([&](const KernelImpl& impl, const OpCase& c, DType dtype) {
    std::vector<Tensor> want = run_case(impl, c, dtype, one);
    EXPECT_TRUE(run_case(impl, c, dtype, two) == want) << impl.name << " " << c.label();
    EXPECT_TRUE(run_case(impl, c, dtype, three) == want) << impl.name << " " << c.label();
  });
}

// Loss and gradients equal those of the three ops that the head replaces.
TEST(LinearCrossEntropy, EqualsLinearThenCrossEntropy) {
  KernelRegistry reference;
  register_ref(reference);
  ThreadTeam team(1);
  auto run = [&](const char* op, std::vector<Tensor> in) {
    return run_case(implementation(reference, op, "ref"), OpCase{op, {}, std::move(in)},
                    DS_DTYPE_F64, team);
  };
  OpCase fused = forward_case(9, 12), fused_dx = backward_of(fused);
  const Tensor &x = fused.in[0], &w = fused.in[1], &targets = fused.in[2], &dloss = fused_dx.in[0];
  Tensor logits = run("linear", {x, w})[0];
  std::vector<Tensor> loss = run("cross_entropy", {logits, targets});
  Tensor dlogits = run("cross_entropy_dx", {dloss, logits, targets, loss[1]})[0];
  std::vector<Tensor> want{loss[0], run("linear_dx", {dlogits, w})[0],
                           run("linear_dw", {dlogits, x})[0]};
  std::vector<Tensor> got{run("linear_cross_entropy", fused.in)[0]};
  for (Tensor& grad : run("linear_cross_entropy_dx", fused_dx.in)) got.push_back(std::move(grad));
  const Attrs kept{{"kept", int64_t{1}}};
  // Each row is padded to a multiple of 8 words.
  Tensor rows(DS_DTYPE_F64, {9, 2104});
  for (int64_t r = 0; r < 9; ++r) {
    for (int64_t v = 0; v < kWords; ++v) rows.set(r * 2104 + v, logits.at(r * kWords + v));
  }
  std::vector<Tensor> in = fused_dx.in;
  in.push_back(rows);
  const KernelImpl& loss_kernel = implementation(reference, "linear_cross_entropy", "ref");
  const KernelImpl& dx_kernel = implementation(reference, "linear_cross_entropy_dx", "ref");
  got.push_back(
      run_case(loss_kernel, {"linear_cross_entropy", kept, fused.in}, DS_DTYPE_F64, team)[0]);
  for (Tensor& grad :
       run_case(dx_kernel, {"linear_cross_entropy_dx", kept, in}, DS_DTYPE_F64, team))
    got.push_back(std::move(grad));
  for (int i = 0; i < 3; ++i) want.push_back(want[static_cast<size_t>(i)]);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    for (int64_t e = 0; e < want[i].numel(); ++e) {
      ASSERT_NEAR(got[i].at(e), want[i].at(e), 1e-13) << "result " << i << " element " << e;
    }
  }
}

// Like CrossEntropy.NearlyCertainTargetsKeepTheirDigits, with the target in each of the three
// blocks. Products are exact in f32, so only the softmax is rounded.
TEST(LinearCrossEntropy, NearlyCertainTargetsKeepTheirDigits) {
  // The typical rounding error of a sum of so many terms.
  const double kOff = 0x1p-24 * std::sqrt(kWords);
  const KernelRegistry registry = built_in_kernels();
  ThreadTeam team(2);
  Tensor one(DS_DTYPE_F64, {}), x(DS_DTYPE_F64, {1, 1}),
      w = random_tensor(DS_DTYPE_F64, {kWords, 1}, 5);
  for (Tensor* t : {&one, &x}) t->set(0, 1);
  for (int64_t v = 0; v < kWords; ++v)
    w.set(v, 33 - std::round(std::abs(w.at(v)) * 0x1p16) * 0x1p-16);
  for (int64_t target : {int64_t{17}, int64_t{1000}, kWords - 1}) {
    Tensor targets(DS_DTYPE_I32, {1}), head = w;
    targets.set(0, static_cast<double>(target));
    head.set(target, 46.125);
    const OpCase forward{"linear_cross_entropy", {}, {x, head, targets}};
    const OpCase backward = backward_of(forward);
    std::vector<Tensor> exact =
        run_case(implementation(registry, forward.op, "ref"), forward, DS_DTYPE_F64, team);
    Tensor want =
        run_case(implementation(registry, backward.op, "ref"), backward, DS_DTYPE_F64, team)[1];
    for (const KernelImpl& impl : registry.all()) {
      if (impl.op != forward.op || !refusal(impl, forward, DS_DTYPE_F32).empty()) continue;
      std::vector<Tensor> loss = run_case(impl, forward, DS_DTYPE_F32, team);
      EXPECT_NEAR(loss[0].at(0) / exact[0].at(0), 1, kOff) << impl.name;
      OpCase own = backward;
      own.in.back() = loss[1];
      Tensor dw = run_case(implementation(registry, own.op, impl.name), own, DS_DTYPE_F32, team)[1];
      for (int64_t v = 0; v < kWords; ++v) {
        ASSERT_NEAR(dw.at(v) / want.at(v), 1, kOff)
            << impl.name << " word " << v << " of " << target;
      }
    }
  }
}

TEST(LinearCrossEntropy, IsZeroWithoutTargets) {
  const KernelRegistry registry = built_in_kernels();
  for (const KernelImpl& impl : registry.all()) {
    OpCase forward = forward_case(3, 8);
    for (int64_t r = 0; r < 3; ++r) forward.in[2].set(r, -100);
    ThreadTeam team(2);
    for (const OpCase& c : both_cases(forward)) {
      if (impl.op != c.op || !refusal(impl, c, DS_DTYPE_F32).empty()) continue;
      std::vector<Tensor> out = run_case(impl, c, DS_DTYPE_F32, team);
      bool backward = c.op != forward.op;
      for (size_t i = 0; i < (backward ? 2u : 1u); ++i) {
        for (int64_t e = 0; e < out[i].numel(); ++e)
          ASSERT_EQ(out[i].at(e), 0) << impl.name << " " << c.op;
      }
    }
  }
}

}  // namespace
}  // namespace ds::test
