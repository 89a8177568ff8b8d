// Tests that compressed gradients equal a reference in this test and do not depend on the layout.
// Also tests the bytes that are sent, the states that are saved and the settings that are refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/config/parse_config.h"
#include "engine/delegate.h"
#include "engine/engine.h"
#include "support/errors.h"
#include "support/models.h"
#include "support/rank_sums.h"
#include "support/ranks.h"
#include "support/run_engines.h"
#include "support/same_bits.h"
#include "support/temp_folder.h"

namespace ds::test::gradient_compression {
namespace {

Config config_with(const Point& p, const std::string& type) {
  Config c = config_of(p);
  c.gradient_compression = {type, 0.05};
  return c;
}

Point plain(int world, int stage = 0) {
  Point p;
  p.world = world;
  p.stage = stage;
  p.leaves = 2 * world;
  return p;
}

std::string train(const Point& p, const std::string& type, int steps = 5) {
  return run_engines(p, config_with(p, type), [&](Engine& engine) {
    for (int s = 0; s < steps; ++s) {
      StepResult r = train_step(p, engine, s);
      EXPECT_TRUE(!r.skipped && std::isfinite(r.loss) && r.grad_norm > 0) << p.name() << " " << s;
    }
  });
}

// --- the reference ---

using Floats = std::vector<float>;

// The exchange of one tensor among ranks, including the errors that each rank keeps. It computes
// the compressed sum of their shares.
struct Reference {
  std::string type;
  // One tensor of errors for each rank.
  std::vector<Floats> errors;
  Floats answer_error;

  Reference(std::string name, size_t ranks, size_t numel)
      : type(std::move(name)), errors(ranks, Floats(numel)), answer_error(numel) {}

  static Floats through_codes(const Floats& x, Floats& error) {
    Floats out(x.size());
    for (size_t g = 0; g < x.size(); g += 256) {
      const size_t end = std::min(x.size(), g + 256);
      float most = 0;
      for (size_t e = g; e < end; ++e) most = std::max(most, std::abs(x[e] + error[e]));
      const float scale = std::max(most / 127.0f, 0x1p-126f), inverse = 1.0f / scale;
      for (size_t e = g; e < end; ++e) {
        const float v = x[e] + error[e];
        out[e] = std::nearbyint(v * inverse) * scale;
        error[e] = v - out[e];
      }
    }
    return out;
  }

  static Floats largest(const Floats& x, Floats& error) {
    Floats out(x.size()), all(x.size());
    std::vector<size_t> order(x.size());
    std::iota(order.begin(), order.end(), size_t{0});
    for (size_t e = 0; e < x.size(); ++e) all[e] = x[e] + error[e];
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return std::abs(all[a]) > std::abs(all[b]); });
    error = all;
    const auto count = static_cast<size_t>(std::ceil(0.05 * static_cast<double>(x.size())));
    for (size_t k = 0; k < count; ++k) {
      out[order[k]] = all[order[k]];
      error[order[k]] = 0;
    }
    return out;
  }

  Floats mean(const std::vector<Floats>& shares) {
    std::vector<Floats> parts;
    for (size_t r = 0; r < shares.size(); ++r)
      parts.push_back(type == "int8" ? through_codes(shares[r], errors[r])
                                     : largest(shares[r], errors[r]));
    // Codes are added in the order of a reduction, neighbours first; largest elements are added in
    // rank order.
    if (type == "int8") return through_codes(sum_of_neighbours(parts), answer_error);
    Floats sum(shares[0].size());
    for (const Floats& part : parts) {
      for (size_t e = 0; e < sum.size(); ++e) sum[e] += part[e];
    }
    return sum;
  }
};

constexpr int64_t kNumels[] = {3000, 7, 1025};

Graph graph() {
  Graph g;
  g.bound = 1;
  ValueId loss;
  for (size_t i = 0; i < 3; ++i) {
    TensorType type{DS_DTYPE_F32, {kNumels[i]}};
    const std::string n = std::to_string(i);
    ValueId one =
        g.add("mse", {g.add_param("p" + n, type, {"normal", 0.1}), g.add_input("t" + n, type)});
    loss = i == 0 ? one : g.add("add", {loss, one});
  }
  g.add_output("loss", loss);
  return g;
}

StepResult step_of(Engine& engine, int step, bool bad = false) {
  std::vector<Floats> targets;
  std::vector<InputView> inputs;
  const int rank = engine.runtime().comm().rank();
  for (int64_t numel : kNumels) {
    targets.emplace_back(static_cast<size_t>(numel));
    for (size_t e = 0; e < targets.back().size(); ++e)
      targets.back()[e] = std::sin(static_cast<float>(e * 7) + static_cast<float>(3 * rank + step));
  }
  if (bad && rank == 1) targets[2][17] = std::numeric_limits<float>::infinity();
  for (const Floats& t : targets) inputs.push_back({t.data(), DS_DTYPE_F32, std::ssize(t)});
  return engine.train_batch(inputs);
}

Config descent(int world, int stage, const std::string& type) {
  Config c = make_config(stage, 1, world);
  c.optimizer.type = "SGD";
  c.optimizer.lr = 1;
  c.optimizer.weight_decay = 0;
  c.gradient_clipping = 0;
  c.gradient_compression = {type, 0.05};
  return c;
}

// In every step, the applied mean equals the one computed from the ranks' own gradients and their
// errors, bit for bit.
TEST(GradientCompression, TheMeanEqualsTheReference) {
  for (const char* type : {"int8", "top_k"}) {
    for (int world : {2, 3, 4}) {
      for (int stage : {0, 1}) {
        run_ranks(world, [&](Communicator& comm) {
          Engine engine(descent(world, stage, type), graph(), comm, {});
          std::vector<Reference> references;
          for (int64_t numel : kNumels)
            references.emplace_back(type, static_cast<size_t>(world), static_cast<size_t>(numel));
          for (int s = 0; s < 6; ++s) {
            std::vector<Floats> before;
            for (size_t i = 0; i < 3; ++i)
              before.push_back(engine.store().read_tensor(ParamId(i), "master"));
            step_of(engine, s);
            for (size_t i = 0; i < 3; ++i) {
              const Floats own = engine.store().read_tensor(ParamId(i), "grad");
              Floats all(own.size() * static_cast<size_t>(world));
              comm.all_gather(own.data(), all.data(), own.size() * sizeof(float), "gradients");
              std::vector<Floats> shares;
              for (int r = 0; r < world; ++r) {
                shares.emplace_back(all.begin() + r * std::ssize(own),
                                    all.begin() + (r + 1) * std::ssize(own));
                for (float& x : shares.back()) x *= static_cast<float>(1.0 / world);
              }
              const Floats mean = references[i].mean(shares),
                           after = engine.store().read_tensor(ParamId(i), "master");
              for (size_t e = 0; e < mean.size(); ++e) {
                ASSERT_EQ(after[e], before[i][e] - mean[e])
                    << type << " " << world << " ranks, stage " << stage << ", step " << s
                    << ", tensor " << i << " element " << e;
              }
            }
          }
        });
      }
    }
  }
}

// --- bits ---

TEST(GradientCompression, SameBitsOverStagesTiersBucketsThreadsAndOrders) {
  for (const char* type : {"int8", "top_k"}) {
    for (int world : {2, 3, 4}) {
      const std::string expected = train(plain(world), type);
      EXPECT_NE(train(plain(world), "none"), expected) << "something is lost";
      std::vector<Point> points(5, plain(world, 1));
      points[0].bucket_size = 3000;
      points[1].threads = 3;
      points[1].tier = Tier::host;
      points[1].separate = 3;
      points[2].tier = Tier::nvme;
      points[2].chaos = 5;
      points[3].chaos = 7;
      points[3].nodes = world == 4 ? 2 : 0;
      points[4].stage = 0;
      points[4].tier = Tier::nvme;
      points[4].bucket_size = 3000;
      for (const Point& p : points) EXPECT_EQ(train(p, type), expected) << type << " " << p.name();
    }
  }
}

TEST(GradientCompression, WorksWithEveryOptimizerAndPrecision) {
  for (const char* optimizer : {"SGD", "Lion", "Adagrad", "Lamb"}) {
    for (const char* type : {"int8", "top_k"}) {
      Point p = plain(2);
      p.optimizer = optimizer;
      p.groups = true;
      p.compute = std::string(type) == "int8" ? DS_DTYPE_F16 : DS_DTYPE_F32;
      const std::string expected = train(p, type);
      p.stage = 1;
      p.tier = Tier::nvme;
      p.bucket_size = 3000;
      EXPECT_EQ(train(p, type), expected) << p.name();
    }
  }
  Point p = plain(2);
  p.leaves = 24;
  const std::string written = train(p, "int8");
  p.written_out = 4;
  EXPECT_EQ(train(p, "int8"), written);
}

TEST(GradientCompression, OneRankSendsNothing) {
  EXPECT_EQ(train(plain(1), "top_k"), train(plain(1), "none"));
}

TEST(GradientCompression, WorksWithFrozenParametersAndSkippedSteps) {
  for (const char* type : {"int8", "top_k"}) {
    Point p = plain(2), q = plain(2, 1);
    q.bucket_size = 3000;
    auto freezing = [&](const Point& point) {
      return run_engines(point, config_with(point, type), [&](Engine& engine) {
        const std::vector<int32_t> some{2, 5};
        for (int s = 0; s < 6; ++s) {
          if (s == 2) engine.trained().freeze(some, 1);
          if (s == 4) engine.trained().freeze(some, 0);
          train_step(point, engine, s);
        }
      });
    };
    EXPECT_EQ(freezing(p), freezing(q)) << type;
    auto skipping = [&](bool bad) {
      Floats out;
      run_ranks(2, [&](Communicator& comm) {
        Engine engine(descent(2, 1, type), graph(), comm, {});
        for (int s = 0; s < 5; ++s) {
          if (bad && s == 2) {
            EXPECT_TRUE(step_of(engine, s, true).skipped);
          }
          EXPECT_FALSE(step_of(engine, s).skipped);
        }
        const Floats mine = engine.store().read_tensor(ParamId(2), "master");
        if (comm.rank() == 0) out = mine;
      });
      return out;
    };
    EXPECT_EQ(skipping(true), skipping(false)) << type;
  }
}

// --- the wire ---

TEST(GradientCompression, TheLedgerCountsItsBytes) {
  for (int world : {2, 3}) {
    for (const char* type : {"int8", "top_k"}) {
      run_ranks(world, [&](Communicator& comm) {
        Engine engine(descent(world, 0, type), graph(), comm, {});
        step_of(engine, 0);
        const int64_t before = bytes_received(engine);
        step_of(engine, 1);
        int64_t padded = 0, top = 0;
        for (const Bucket& b : engine.plan().zero.layout.buckets) padded += b.numel;
        for (int64_t numel : kNumels) top += (numel + 19) / 20;
        const int64_t codes = padded / 256 * 260;
        const int64_t sent =
            type == std::string("int8") ? 2 * (world - 1) * codes / world : (world - 1) * 8 * top;
        EXPECT_EQ(bytes_received(engine) - before, sent + (world - 1) * (4 + 8))
            << type << " " << world;
      });
    }
  }
}

// --- checkpoints ---

TEST(GradientCompression, ResumesExactlyWithItsErrors) {
  for (const char* type : {"int8", "top_k"}) {
    const std::string straight = train(plain(2), type, 20);
    for (int stage : {0, 1}) {
      TempFolder folder;
      Point p = plain(2), q = plain(2, stage);
      q.tier = stage == 1 ? Tier::host : Tier::device;
      run_engines(p, config_with(p, type), [&](Engine& engine) {
        for (int s = 0; s < 10; ++s) train_step(p, engine, s);
        engine.checkpoints().save(folder.path(), {}, {}, "");
      });
      EXPECT_EQ(run_engines(q, config_with(q, type),
                            [&](Engine& engine) {
                              // The load overwrites the effect of this step.
                              train_step(q, engine, 50);
                              engine.checkpoints().load(folder.path(), "");
                              for (int s = 10; s < 20; ++s) train_step(q, engine, s);
                            }),
                straight)
          << type << " stage " << stage;
    }
    TempFolder folder;
    Point p = plain(2), more = plain(4, 1);
    run_engines(p, config_with(p, type), [&](Engine& engine) {
      for (int s = 0; s < 3; ++s) train_step(p, engine, s);
      engine.checkpoints().save(folder.path(), {}, {}, "");
    });
    run_engines(more, config_with(more, type), [&](Engine& engine) {
      engine.checkpoints().load(folder.path(), "");
      for (int s = 3; s < 5; ++s) EXPECT_FALSE(train_step(more, engine, s).skipped);
    });
  }
}

// --- refusals ---

TEST(GradientCompression, InvalidConfigurationsAreRefused) {
  const struct {
    const char *config, *says;
  } cases[] = {
      {R"({"gradient_compression": {"type": "int7"}})", "gradient_compression.type"},
      {R"({"gradient_compression": {"type": "top_k", "ratio": 0}})",
       "ratio: must be above 0, got 0"},
      {R"({"gradient_compression": {"type": "top_k", "ratio": 1.5}})",
       "gradient_compression.ratio"},
      {R"({"gradient_compression": {"type": "int8", "ratio": 0.5}})",
       "needs gradient_compression.type \"top_k\""},
      {R"({"gradient_compression": {"type": "int8", "rate": 0.5}})", "gradient_compression.rate"},
      {R"({"gradient_compression": {"type": "int8"}, "zero_optimization": {"stage": 2}})",
       "needs zero_optimization.stage 0 or 1, got 2"},
      {R"({"gradient_compression": {"type": "int8"}, "optimizer": {"type": "OneBitAdam"}})",
       "excludes optimizer.type OneBitAdam"},
      {R"({"gradient_compression": {"type": "top_k"}, "sparse_gradients": true})",
       "excludes sparse_gradients"},
  };
  for (const auto& c : cases) {
    Json document = Json::parse(c.config);
    document.set("train_batch_size", 2);
    std::string message;
    try {
      parse_config(document, 2);
    } catch (const Error& error) {
      message = error.what();
    }
    EXPECT_NE(message.find(c.says), std::string::npos) << c.config << ": " << message;
  }
  auto comm = create_communicator("self", {});
  expect_names(message_of([&] { DelegateEngine(config_with(plain(1), "int8"), *comm, {}); },
                          DS_ERROR_UNSUPPORTED),
               {"gradient_compression.type", "needs a graph"});
}

}  // namespace
}  // namespace ds::test::gradient_compression
