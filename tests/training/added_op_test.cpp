// A new op needs only a row in the op table and kernels. This file adds `square` and trains with
// it, although no pass, executor or engine knows it.
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/graph/ops.h"
#include "engine/engine.h"
#include "kernels/custom.h"
#include "support/models.h"
#include "support/ranks.h"
#include "support/same_bits.h"

namespace ds::test::added_op_test {
namespace {

using In = std::span<const TensorType>;

double one_each(In in, const Attrs&, int64_t n) {
  return static_cast<double>(in[0].shape.numel(n));
}
std::vector<TensorType> as_first(In in, const Attrs&) { return {in[0]}; }

// Adds `square` and `square_dx` to the op table: y = x x.
void add_rows() {
  if (find_op("square")) return;
  add_op({.name = "square",
          .forms = {{"", {{"x"}}, {{"y"}}}},
          .infer = as_first,
          .backward = [](BackwardContext& c) -> std::vector<ValueId> {
            return {c.emit("square_dx", {c.first_grad(), c.node.in[0]}, {}, {0})};
          },
          .flops = one_each,
          .rows = Rows::same_of_one,
          .cheap = true});
  add_op({.name = "square_dx",
          .forms = {{"", {{"dy"}, {"x"}}, {{"dx"}}}},
          .infer = as_first,
          .flops = one_each});
}

void square(const KernelContext& c) {
  for (int64_t e = 0; e < c.in[0].numel(); ++e) {
    float x = c.in[0].as<float>()[e];
    c.out[0].as<float>()[e] = x * x;
  }
}

// Computes dx = dy x + dy x, in the order in which `mul` adds its two gradients.
void square_dx(const KernelContext& c) {
  for (int64_t e = 0; e < c.in[0].numel(); ++e) {
    float part = c.in[0].as<float>()[e] * c.in[1].as<float>()[e];
    c.out[0].as<float>()[e] = part + part;
  }
}

void add_kernels(KernelRegistry& registry) {
  registry.add({"square", "test", square, nullptr});
  registry.add({"square_dx", "test", square_dx, nullptr});
}

constexpr int64_t kRows = 8, kWidth = 12;

// The function x squared as a custom op with callbacks of the host application.
class OwnSquare final : public CustomKernels {
 public:
  OwnSquare() {
    name = "own_square";
    outputs = "T[n,12]";
    has_backward = true;
  }
  void forward(Views in, Views out) const override {
    square({in, out, attrs_, scalars_, 0, team_});
  }
  void backward(Views in, Views, Views output_grads, Views input_grads) const override {
    const TensorView both[] = {output_grads[0], in[0]};
    square_dx({both, input_grads, attrs_, scalars_, 0, team_});
  }

 private:
  Attrs attrs_;
  StepScalars scalars_;
  mutable ThreadTeam team_{1};
};

enum class By { mul, added, custom };

// Returns two layers with a square after each, computed by `mul`, by the new op or by the custom
// op.
Graph network(By by) {
  Graph g;
  g.bound = kRows;
  ValueId x = g.add_input("x", {DS_DTYPE_F32, {Dim::n(), kWidth}});
  ValueId target = g.add_input("target", {DS_DTYPE_F32, {Dim::n(), kWidth}});
  for (const char* name : {"a", "b"}) {
    ValueId w = g.add_param(name, {DS_DTYPE_F32, {kWidth, kWidth}}, {"normal", 0.3});
    x = g.add("linear", {x, w});
    if (by == By::mul) x = g.add("mul", {x, x});
    if (by == By::added) x = g.add("square", {x});
    if (by == By::custom) x = g.add_custom(std::make_shared<OwnSquare>(), {x});
  }
  g.add_output("loss", g.add("mse", {x, target}));
  return g;
}

struct Trained {
  std::vector<double> losses;
  std::vector<std::vector<float>> masters;
  bool operator==(const Trained&) const = default;
};

Trained train(By by, int stage, int world, const std::string& recompute,
              std::optional<uint64_t> chaos) {
  Trained out;
  run_ranks(world, [&](Communicator& comm) {
    Config c = make_config(stage, 2 / world, world);
    c.recompute = recompute;
    EngineOptions options;
    options.kernel_filter = add_kernels;
    set_device(options, {.chaos = chaos});
    if (chaos) c.device = "cpu";
    Engine engine(c, network(by), comm, options);
    std::vector<float> x(static_cast<size_t>(kRows * kWidth) * static_cast<size_t>(2 / world)),
        target(x.size());
    Trained mine;
    for (int step = 0; step < 4; ++step) {
      for (size_t i = 0; i < x.size(); ++i) {
        // Leaf m of a rank is leaf m * world + rank of the step.
        size_t each = static_cast<size_t>(kRows * kWidth),
               leaf = i / each * static_cast<size_t>(world);
        size_t at = (leaf + static_cast<size_t>(comm.rank())) * each + i % each;
        x[i] = static_cast<float>(at * 7 % 23) / 23.0f - 0.5f;
        target[i] = static_cast<float>((at + static_cast<size_t>(step)) * 5 % 19) / 19.0f;
      }
      std::vector<InputView> inputs{{x.data(), DS_DTYPE_F32, static_cast<int64_t>(x.size())},
                                    {target.data(), DS_DTYPE_F32, static_cast<int64_t>(x.size())}};
      mine.losses.push_back(engine.train_batch(inputs).loss);
    }
    for (ParamId p : engine.store().param_names().ids())
      mine.masters.push_back(engine.store().read_tensor(p, "master"));
    if (comm.rank() == 0) out = mine;
  });
  return out;
}

TEST(AddedOp, HasTheBitsOfTheFormulaWithExistingOps) {
  add_rows();
  for (int world : {1, 2}) {
    for (int stage = 0; stage <= 3; ++stage) {
      Trained known = train(By::mul, stage, world, "none", {});
      EXPECT_LT(known.losses.back(), known.losses.front());
      EXPECT_EQ(train(By::added, stage, world, "none", {}), known)
          << "stage " << stage << " world " << world;
      EXPECT_EQ(train(By::added, stage, world, "cheap", 5), known)
          << "recomputed, under chaos: stage " << stage;
      EXPECT_EQ(train(By::custom, stage, world, "layers", 5), known)
          << "callbacks under chaos: stage " << stage;
    }
  }
}

TEST(AddedOp, ADuplicateNameIsRefused) {
  add_rows();
  EXPECT_THROW(add_op({.name = "square", .infer = as_first, .flops = one_each}), Error);
  EXPECT_THROW(add_op({.name = "linear", .infer = as_first, .flops = one_each}), Error);
  EXPECT_THROW(add_op({.name = "no_cost", .infer = as_first}), Error);
}

}  // namespace
}  // namespace ds::test::added_op_test
