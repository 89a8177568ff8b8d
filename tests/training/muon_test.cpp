// Tests Muon, mostly in engines whose host hands over the gradients. The expected results come from
// the formulas in plain f64 loops, for both methods of orthogonalization. Also tests which
// parameters are matrices, how stacks of matrices are treated, what is gathered and what is
// refused. Recorded trajectories are in optimizer_semantics_test.cpp, equal bits over layouts in
// optimizers_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "compile/pipeline.h"
#include "core/base/random.h"
#include "engine/delegate.h"
#include "support/errors.h"
#include "support/initial.h"
#include "support/models.h"
#include "support/ranks.h"
#include "support/same_bits.h"

namespace ds::test::muon_test {
namespace {

using Matrix = std::vector<double>;
using Values = std::vector<std::vector<float>>;

struct Param {
  std::string name;
  std::vector<int64_t> shape;
  int64_t numel() const {
    int64_t n = 1;
    for (int64_t extent : shape) n *= extent;
    return n;
  }
};

std::vector<float> drawn(int64_t count, uint64_t seed) {
  std::vector<float> out;
  RandomStream stream{seed, 0, 0, 3};
  for (int64_t e = 0; e < count; ++e)
    out.push_back(2 * uniform01(stream.block(static_cast<uint64_t>(e))[0]) - 1);
  return out;
}

Config muon(int stage, int world, const std::string& method) {
  Config c = make_config(stage, 1, world);
  c.gradient_clipping = 0;
  c.optimizer.type = "Muon";
  c.optimizer.lr = 0.05;
  c.optimizer.adam_lr = 0.01;
  c.optimizer.momentum = 0.9;
  c.optimizer.weight_decay = 0.1;
  c.optimizer.beta2 = 0.95;
  c.optimizer.ns_method = method;
  c.zero.reduce_bucket_size = 4000;
  c.zero.param_persistence_threshold = 100;
  return c;
}

// Returns the masters after `steps` steps. Every rank hands over the same gradients.
Values train(const Config& config, int world, const std::vector<Param>& params, int steps) {
  Values initial, out;
  for (size_t p = 0; p < params.size(); ++p) initial.push_back(drawn(params[p].numel(), 10 + p));
  run_ranks(world, [&](Communicator& comm) {
    DelegateEngine engine(config, comm, with_values(initial));
    for (const Param& p : params) engine.add_param(p.name, p.shape);
    engine.start();
    for (int s = 0; s < steps; ++s) {
      for (size_t p = 0; p < params.size(); ++p) {
        std::vector<float> grad =
            drawn(params[p].numel(), 1000 + 50 * static_cast<uint64_t>(s) + p);
        engine.grad_ready(ParamId(p), {grad.data(), DS_DTYPE_F32, params[p].numel()});
      }
      engine.end_micro_step();
      engine.step();
    }
    Values got;
    for (size_t p = 0; p < params.size(); ++p)
      got.push_back(engine.store().read_tensor(ParamId(p), "master"));
    if (comm.rank() == 0) out = got;
  });
  return out;
}

// Returns a[m,k] b[k,n].
Matrix times(const Matrix& a, const Matrix& b, int64_t m, int64_t k, int64_t n) {
  Matrix out(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t l = 0; l < k; ++l)
        out[static_cast<size_t>(i * n + j)] +=
            a[static_cast<size_t>(i * k + l)] * b[static_cast<size_t>(l * n + j)];
    }
  }
  return out;
}

Matrix transposed(const Matrix& a, int64_t rows, int64_t cols) {
  Matrix out(a.size());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j)
      out[static_cast<size_t>(j * rows + i)] = a[static_cast<size_t>(i * cols + j)];
  }
  return out;
}

Matrix orthogonal(Matrix x, int64_t rows, int64_t cols) {
  double norm = 0;
  for (double v : x) norm += v * v;
  for (double& v : x) v /= std::sqrt(norm) + 1e-7;
  const bool tall = rows > cols;
  if (tall) x = transposed(x, rows, cols);
  const int64_t s = std::min(rows, cols), l = std::max(rows, cols);
  for (int i = 0; i < 5; ++i) {
    Matrix a = times(x, transposed(x, s, l), s, l, s), a2 = times(a, a, s, s, s), b(a.size());
    for (size_t e = 0; e < a.size(); ++e) b[e] = -4.7750 * a[e] + 2.0315 * a2[e];
    Matrix bx = times(b, x, s, s, l);
    for (size_t e = 0; e < x.size(); ++e) x[e] = 3.4445 * x[e] + bx[e];
  }
  if (tall) x = transposed(x, s, l);
  for (double& v : x)
    v *= std::sqrt(std::max(1.0, static_cast<double>(rows) / static_cast<double>(cols)));
  return x;
}

// Trains one matrix on the same gradients by the plain formulas, and returns the result.
Matrix expected(const Config& c, const Param& param, size_t number, int steps) {
  std::vector<float> start = drawn(param.numel(), 10 + number);
  Matrix p(start.begin(), start.end()), m(p.size());
  const double beta = c.optimizer.momentum;
  for (int s = 0; s < steps; ++s) {
    std::vector<float> g = drawn(param.numel(), 1000 + 50 * static_cast<uint64_t>(s) + number);
    Matrix ahead(p.size());
    // The engine rounds the gradients to bf16, so they are rounded here as well.
    if (c.compute == DS_DTYPE_BF16) {
      for (float& x : g) x = static_cast<float>(bf16(x));
    }
    for (size_t e = 0; e < p.size(); ++e) {
      m[e] = beta * m[e] + (1 - beta) * static_cast<double>(g[e]);
      ahead[e] = (1 - beta) * static_cast<double>(g[e]) + beta * m[e];
    }
    Matrix step = orthogonal(ahead, param.shape[0], param.shape[1]);
    for (size_t e = 0; e < p.size(); ++e)
      p[e] = p[e] * (1 - c.optimizer.lr * c.optimizer.weight_decay) - c.optimizer.lr * step[e];
  }
  return p;
}

const std::vector<Param> kMatrices{{"a", {12, 20}}, {"b", {20, 12}}, {"c", {16, 16}},
                                   {"d", {1, 7}},   {"e", {300, 5}}, {"f", {24, 100}}};

TEST(Muon, FollowsThePlainFormulas) {
  constexpr int kSteps = 4;
  for (const char* method : {"gram", "standard"}) {
    for (int stage : {0, 2}) {
      const Config c = muon(stage, 3, method);
      Values got = train(c, 3, kMatrices, kSteps);
      for (size_t p = 0; p < kMatrices.size(); ++p) {
        Matrix want = expected(c, kMatrices[p], p, kSteps);
        for (size_t e = 0; e < want.size(); ++e)
          ASSERT_NEAR(got[p][e], want[e], 1e-4 * c.optimizer.lr * kSteps)
              << method << " " << kMatrices[p].name;
      }
    }
  }
}

// In a bf16 model, "standard" multiplies in bf16 and "gram" in f32.
TEST(Muon, StandardMultipliesInTheTypeOfTheModel) {
  constexpr int kSteps = 2;
  auto worst = [&](const char* method) {
    Config c = muon(1, 2, method);
    c.compute = DS_DTYPE_BF16;
    Values got = train(c, 2, kMatrices, kSteps);
    double most = 0;
    for (size_t p = 0; p < kMatrices.size(); ++p) {
      Matrix want = expected(c, kMatrices[p], p, kSteps);
      for (size_t e = 0; e < want.size(); ++e) most = std::max(most, std::abs(got[p][e] - want[e]));
    }
    return most / (c.optimizer.lr * kSteps);
  };
  EXPECT_LT(worst("gram"), 1e-4);
  EXPECT_LT(worst("standard"), 5e-2);
  EXPECT_GT(worst("standard"), 1e-3);
}

TEST(Muon, AStackIsMatricesSideBySide) {
  const Config c = muon(1, 3, "gram");
  // The initial values and gradients of the stack are those of its matrices in order.
  Values stack = train(c, 3, {{"s", {3, 14, 9}}}, 3);
  const std::vector<float> start = drawn(3 * 14 * 9, 10);
  for (size_t k = 0; k < 3; ++k) {
    std::vector<float> own(start.begin() + static_cast<int64_t>(k) * 126,
                           start.begin() + static_cast<int64_t>(k + 1) * 126);
    std::vector<float> got;
    run_ranks(3, [&](Communicator& comm) {
      DelegateEngine engine(muon(0, 3, "gram"), comm, with_values({own}));
      engine.add_param("one", {14, 9});
      engine.start();
      for (int s = 0; s < 3; ++s) {
        std::vector<float> all = drawn(3 * 126, 1000 + 50 * static_cast<uint64_t>(s));
        engine.grad_ready(ParamId(0), {all.data() + 126 * k, DS_DTYPE_F32, 126});
        engine.end_micro_step();
        engine.step();
      }
      std::vector<float> master = engine.store().read_tensor(ParamId(0), "master");
      if (comm.rank() == 0) got = master;
    });
    for (size_t e = 0; e < got.size(); ++e)
      ASSERT_EQ(got[e], stack[0][126 * k + e]) << k << " " << e;
  }
}

// Names of embeddings and heads are matched in any case. A parameter that is not updated as a
// matrix has AdamW's bits at Muon's second rate.
TEST(Muon, LeavesEmbeddingsAndVectorsToAdamw) {
  const std::vector<Param> params{
      {"tok_Embed.weight", {10, 30}}, {"LM_head", {30, 10}}, {"bias", {300}}, {"w", {10, 30}}};
  Config c = muon(2, 2, "gram"), adamw = c;
  adamw.optimizer.type = "AdamW";
  adamw.optimizer.lr = *c.optimizer.adam_lr;
  Values got = train(c, 2, params, 3), want = train(adamw, 2, params, 3);
  for (size_t p = 0; p < 3; ++p) EXPECT_EQ(got[p], want[p]) << params[p].name;
  EXPECT_NE(got[3], want[3]);
}

TEST(Muon, MatricesHaveOneState) {
  run_ranks(1, [&](Communicator& comm) {
    DelegateEngine engine(muon(0, 1, "gram"), comm, with_values({}));
    engine.add_param("w", {16, 16});
    engine.add_param("b", {512});
    engine.start();
    auto bytes = engine.store().state_bytes();
    EXPECT_EQ((bytes[{Tier::device, "exp_avg"}]), 4 * (256 + 512));
    EXPECT_EQ((bytes[{Tier::device, "exp_avg_sq"}]), 4 * 512);
    EXPECT_EQ(engine.store().read_tensor(ParamId(0), "exp_avg_sq"), std::vector<float>(256));
    expect_names(
        message_of(
            [&] { engine.store().write_tensor(ParamId(0), "exp_avg_sq", std::vector<float>(256)); },
            DS_ERROR_STATE),
        {"'w'", "exp_avg_sq"});
  });
}

// A step gathers the other ranks' parts of the matrices, in f32.
TEST(Muon, APlanNotesTheMatricesAndBytesThatAStepGathers) {
  Point p;
  p.optimizer = "Muon";
  p.world = 4;
  for (int stage : {0, 1, 3}) {
    p.stage = stage;
    Plan plan = compile_plan(graph_of(p), config_of(p), 1, 4, Machine{});
    int64_t elements = 0, matrices = 0;
    for (const Bucket& b : plan.zero.layout.buckets) {
      elements += b.matrices ? b.numel : 0;
      matrices += b.matrices ? std::ssize(b.params) : 0;
    }
    const int64_t bytes = stage == 0 ? 0 : 4 * elements / 4 * 3;
    expect_names(plan.zero.notes.back(),
                 {std::to_string(matrices) + " matrices", std::to_string(bytes) + " bytes"});
    EXPECT_GT(matrices, 5);
  }
  p.optimizer = "AdamW";
  EXPECT_TRUE(compile_plan(graph_of(p), config_of(p), 1, 4, Machine{}).zero.notes.empty());
}

// A matrix that is frozen between steps does not change, although others in its bucket do, and
// trains again once thawed.
TEST(Muon, AFrozenMatrixStaysUnchanged) {
  Point p;
  p.optimizer = "Muon";
  p.world = 2;
  std::string first;
  for (int stage : {0, 1, 3}) {
    p.stage = stage;
    run_ranks(2, [&](Communicator& comm) {
      EngineOptions options;
      set_device(options, p);
      Engine engine(config_of(p), graph_of(p), comm, options);
      ParamId frozen(0);
      for (ParamId q : engine.store().param_names().ids()) {
        if (engine.store().param_names()[q] == "h.0.mlp.fc.weight") frozen = q;
      }
      ASSERT_NE(frozen, ParamId(0));
      train_step(p, engine, 0);
      const std::vector<int32_t> ids{static_cast<int32_t>(frozen.number())};
      engine.trained().freeze(ids, 1);
      const std::vector<float> before = engine.store().read_tensor(frozen, "master");
      for (int s = 1; s < 3; ++s) train_step(p, engine, s);
      EXPECT_EQ(engine.store().read_tensor(frozen, "master"), before) << stage;
      engine.trained().freeze(ids, 0);
      train_step(p, engine, 3);
      EXPECT_NE(engine.store().read_tensor(frozen, "master"), before) << stage;
      std::string hash = hash_of_states(engine);
      if (comm.rank() != 0) return;
      if (first.empty()) first = hash;
      EXPECT_EQ(hash, first) << stage;
    });
  }
}

TEST(Muon, RefusesSettingsWithoutMatrices) {
  run_ranks(1, [&](Communicator& comm) {
    DelegateEngine engine(muon(0, 1, "gram"), comm, with_values({}));
    engine.add_param("conv", {2, 3, 4, 5});
    expect_names(message_of([&] { engine.start(); }, DS_ERROR_UNSUPPORTED),
                 {"optimizer.type", "'conv' has 4 dimensions"});
  });
  Point p;
  p.optimizer = "Muon";
  p.clipping = 0;
  Graph graph = graph_of(p);
  for (Parameter& param : graph.params) {
    std::vector<int64_t> shape;
    for (const Dim& d : graph.type(param.value).shape.dims()) shape.push_back(d.extent);
    if (shape.size() != 2 || param.name.find("fc") == param.name.npos) continue;
    ParamSlice half{{2 * shape[0], shape[1]}, 0, {{0, shape[0]}}, {"tensor"}};
    param.slice = half;
  }
  expect_names(message_of(
                   [&] {
                     compile_plan(graph, config_of(p), 0, Mesh({{"tensor", 2}, {kData, p.world}}),
                                  Machine{});
                   },
                   DS_ERROR_UNSUPPORTED),
               {"optimizer.type", "matrices of Muon", "mesh cuts"});
  // 8-bit states are refused on this mesh as well.
  p.optimizer = "AdamW";
  p.states = DS_DTYPE_U8;
  expect_names(message_of(
                   [&] {
                     compile_plan(graph, config_of(p), 0, Mesh({{"tensor", 2}, {kData, p.world}}),
                                  Machine{});
                   },
                   DS_ERROR_UNSUPPORTED),
               {"optimizer.states", "8-bit states", "mesh cuts"});
}

}  // namespace
}  // namespace ds::test::muon_test
