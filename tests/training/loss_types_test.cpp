// Tests losses and other outputs in types other than f32: an engine reads each of them in its own
// type.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/engine.h"
#include "support/errors.h"
#include "support/models.h"
#include "support/ranks.h"
#include "support/same_bits.h"

namespace ds::test::loss_types_test {
namespace {

constexpr int64_t kRows = 4, kWidth = 6;

// Returns a graph whose loss is the mean squared error of a linear layer, computed in element type
// `inner` and cast to `outer`.
Graph graph_of(const char* inner, const char* outer) {
  Graph g;
  g.name = "typed";
  g.bound = kRows;
  TensorType rows{DS_DTYPE_F32, Shape{Dim::n(), kWidth}};
  ValueId x = g.add_input("x", rows), target = g.add_input("target", rows);
  ValueId w = g.add_param("weight", {DS_DTYPE_F32, Shape{kWidth, kWidth}}, {"normal", 0.5});
  auto cast = [&](ValueId value, const char* type) {
    return g.add("cast", {value}, {{"dtype", std::string(type)}});
  };
  ValueId y = cast(g.add("linear", {x, w}), inner);
  g.add_output("loss", cast(g.add("mse", {y, cast(target, inner)}), outer));
  g.add_output("prediction", y);
  return g;
}

struct Numbers {
  double trained = 0, forward = 0, evaluated = 0;
  std::vector<float> inferred, weight;
};

Numbers run(const Graph& graph, int world) {
  Numbers out;
  std::vector<float> x(kRows * kWidth), target(x.size(), 0.25f);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7) / 8;
  run_ranks(world, [&](Communicator& comm) {
    Engine engine(make_config(world - 1, 1, world), graph, comm, {});
    auto count = static_cast<int64_t>(x.size());
    std::vector<InputView> inputs{{x.data(), DS_DTYPE_F32, count},
                                  {target.data(), DS_DTYPE_F32, count}};
    Numbers mine;
    mine.evaluated = engine.eval_batch(inputs);
    mine.inferred = engine.infer(inputs).values;
    mine.trained = engine.train_batch(inputs).loss;
    mine.forward = engine.forward(inputs);
    engine.backward();
    engine.step();
    mine.weight = engine.store().read_tensor(ParamId(0), "master");
    if (comm.rank() == 0) out = mine;
  });
  return out;
}

TEST(LossTypes, AreReadInTheirOwnType) {
  for (int world : {1, 2}) {
    Numbers want = run(graph_of("f32", "f32"), world);
    EXPECT_GT(want.trained, 0.01);
    for (auto [inner, outer, eps] :
         {std::tuple{"f64", "f64", 1e-6}, {"f32", "f64", 1e-6}, {"f32", "bf16", 4e-3}}) {
      Numbers got = run(graph_of(inner, outer), world);
      EXPECT_NEAR(got.trained, want.trained, eps * want.trained) << inner << " " << outer;
      EXPECT_NEAR(got.evaluated, want.evaluated, eps * want.evaluated) << inner << " " << outer;
      EXPECT_NEAR(got.forward, want.forward, eps * want.forward) << inner << " " << outer;
      EXPECT_EQ(got.inferred, want.inferred) << inner << " " << outer;
      ASSERT_EQ(got.weight.size(), want.weight.size());
      for (size_t i = 0; i < got.weight.size(); ++i)
        EXPECT_NEAR(got.weight[i], want.weight[i], 1e-4);
    }
  }
}

TEST(LossTypes, WholeNumbersAreRefused) {
  Graph g;
  g.name = "whole";
  g.bound = 1;
  g.add_param("weight", {DS_DTYPE_F32, Shape{kWidth, kWidth}}, {});
  g.add_output("loss", g.add_input("i", {DS_DTYPE_I32, Shape{}}));
  auto comm = create_communicator("self", {});
  expect_names(
      message_of([&] { Engine(make_config(0, 1, 1), g, *comm, {}); }, DS_ERROR_INVALID_ARGUMENT),
      {"output 0 of graph 'whole' must be a scalar loss", "i32"});
}

}  // namespace
}  // namespace ds::test::loss_types_test
