// A delegate host with a base of its own and low-rank adapters beside it: the base is frozen, so it
// is cut, offloaded and gathered like any parameter, but has no gradient, master or state. The host
// computes y = W x + B A x for each layer, and its results are compared with a training in f64.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "engine/delegate.h"
#include "support/initial.h"
#include "support/models.h"
#include "support/ranks.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

constexpr int kLayers = 2;
constexpr int64_t kWidth = 32, kRank = 4;
constexpr double kRate = 0.25;

template <typename T>
using Vector = std::vector<T>;

// Returns W^T x or W x of a matrix with `rows` rows.
template <typename T, typename W>
Vector<T> times(const W* w, const Vector<T>& x, int64_t rows, bool transposed) {
  const int64_t columns = static_cast<int64_t>(x.size());
  Vector<T> y(static_cast<size_t>(rows), T(0));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c)
      y[static_cast<size_t>(r)] += static_cast<T>(w[transposed ? c * rows + r : r * columns + c]) *
                                   x[static_cast<size_t>(c)];
  }
  return y;
}

template <typename T>
void add(Vector<T>& to, const Vector<T>& x) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += x[i];
}

template <typename T>
void add_outer(Vector<T>& to, const Vector<T>& left, const Vector<T>& right) {
  for (size_t r = 0; r < left.size(); ++r) {
    for (size_t c = 0; c < right.size(); ++c) to[r * right.size() + c] += left[r] * right[c];
  }
}

// The host's forward and backward part for one input, with arithmetic in T. `weights` returns W, A
// or B of a layer while it is needed, and `gradient` takes those of A and B.
template <typename T, typename Weights, typename Take>
double pass(const Vector<T>& x, const Weights& weights, const Take& gradient) {
  Vector<T> h = x;
  std::vector<Vector<T>> inputs, inner;
  for (int l = 0; l < kLayers; ++l) {
    inputs.push_back(h);
    weights(l, [&](const auto* w, const auto* a, const auto* b) {
      inner.push_back(times(a, h, kRank, false));
      Vector<T> y = times(w, h, kWidth, false);
      add(y, times(b, inner.back(), kWidth, false));
      h = y;
    });
  }
  double loss = 0;
  for (T y : h) loss += 0.5 * static_cast<double>(y) * static_cast<double>(y);
  for (int l = kLayers - 1; l >= 0; --l) {
    const auto at = static_cast<size_t>(l);
    weights(l, [&](const auto* w, const auto* a, const auto* b) {
      Vector<T> of_inner = times(b, h, kRank, true);
      Vector<T> da(kRank * kWidth, T(0)), db(kWidth * kRank, T(0));
      add_outer(db, h, inner[at]);
      add_outer(da, of_inner, inputs[at]);
      gradient(l, da, db);
      Vector<T> below = times(w, h, kWidth, true);
      add(below, times(a, of_inner, kWidth, true));
      h = below;
    });
  }
  return loss;
}

// Values that bf16 represents, so that a base in bf16 is exact.
std::vector<float> values(int64_t count, int seed, double scale) {
  std::vector<float> out;
  for (int64_t i = 0; i < count; ++i)
    out.push_back(static_cast<float>(bf16(static_cast<float>(
        scale * std::sin(1.7 * static_cast<double>(i * (seed + 3) % 991) + seed)))));
  return out;
}

std::vector<std::vector<float>> initial() {
  std::vector<std::vector<float>> out;
  for (int l = 0; l < kLayers; ++l) {
    out.push_back(values(kWidth * kWidth, 3 * l, 0.15));
    out.push_back(values(kRank * kWidth, 3 * l + 1, 0.2));
    out.push_back(values(kWidth * kRank, 3 * l + 2, 0.2));
  }
  return out;
}

template <typename T>
Vector<T> input(int step, int rank) {
  Vector<T> x;
  for (int64_t i = 0; i < kWidth; ++i)
    x.push_back(static_cast<T>(std::cos(static_cast<double>(i + 7 * step + 31 * rank)) / 4));
  return x;
}

// Returns the parameters after steps of plain SGD on the inputs of all ranks, in f64.
std::vector<std::vector<double>> expected(int steps, int world) {
  std::vector<std::vector<double>> p;
  for (const std::vector<float>& tensor : initial()) p.emplace_back(tensor.begin(), tensor.end());
  auto weights = [&](int l, const auto& f) {
    const auto at = static_cast<size_t>(3 * l);
    f(p[at].data(), p[at + 1].data(), p[at + 2].data());
  };
  for (int s = 0; s < steps; ++s) {
    std::vector<std::vector<double>> sums(p.size());
    for (size_t i = 0; i < p.size(); ++i) sums[i].assign(p[i].size(), 0);
    for (int r = 0; r < world; ++r) {
      pass<double>(input<double>(s, r), weights, [&](int l, const auto& da, const auto& db) {
        add(sums[static_cast<size_t>(3 * l + 1)], da);
        add(sums[static_cast<size_t>(3 * l + 2)], db);
      });
    }
    for (size_t i = 0; i < p.size(); ++i) {
      for (size_t e = 0; e < p[i].size(); ++e) p[i][e] -= kRate * sums[i][e] / world;
    }
  }
  return p;
}

class AdapterHost {
 public:
  AdapterHost(const Config& config, Communicator& comm)
      : engine_(config, comm, with_values(initial())), rank_(comm.rank()) {
    for (int l = 0; l < kLayers; ++l) {
      const std::string layer = "layer." + std::to_string(l);
      engine_.add_param(layer + ".base", {kWidth, kWidth});
      engine_.add_param(layer + ".lora_A.weight", {kRank, kWidth});
      engine_.add_param(layer + ".lora_B.weight", {kWidth, kRank});
    }
    engine_.start();
  }

  void step(int number) {
    auto weights = [&](int l, const auto& f) {
      const std::array<ParamId, 3> all{ParamId(3 * l), ParamId(3 * l + 1), ParamId(3 * l + 2)};
      engine_.gather(all);
      const DelegateEngine::Seen w = engine_.view(all[0]), a = engine_.view(all[1]),
                                 b = engine_.view(all[2]);
      if (w.view.dtype == DS_DTYPE_F32) {
        f(w.view.as<float>(), a.view.as<float>(), b.view.as<float>());
      } else {
        f(w.view.as<bf16>(), a.view.as<bf16>(), b.view.as<bf16>());
      }
      engine_.release(all);
    };
    pass<float>(input<float>(number, rank_), weights, [&](int l, const auto& da, const auto& db) {
      give(3 * l + 1, da);
      give(3 * l + 2, db);
    });
    engine_.end_micro_step();
    engine_.step();
  }

  DelegateEngine& engine() { return engine_; }

 private:
  void give(int param, const std::vector<float>& gradient) {
    engine_.grad_ready(ParamId(param),
                       {gradient.data(), DS_DTYPE_F32, static_cast<int64_t>(gradient.size())});
  }

  DelegateEngine engine_;
  int rank_;
};

Config host_config(int stage, int world, const std::string& folder) {
  Config config = make_config(stage, 1, world);
  config.optimizer.type = "SGD";
  config.optimizer.lr = kRate;
  config.optimizer.weight_decay = 0;
  config.frozen = {"*.base"};
  config.zero.param_persistence_threshold = 0;
  config.zero.nvme_path = folder;
  return config;
}

class HostWithAdapters : public testing::Test {
 protected:
  TempFolder folder_;
};

TEST_F(HostWithAdapters, TrainsAsInF64AtEveryStageAndTier) {
  for (int world : {1, 2, 3}) {
    const std::vector<std::vector<double>> want = expected(4, world);
    for (int stage : {0, 2, 3}) {
      for (Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
        if (stage == 0 && tier != Tier::device) continue;
        Config config = host_config(stage, world, folder_.path());
        if (stage == 3) config.zero.param_tier = tier;
        if (stage > 0) config.zero.optimizer_tier = tier;
        run_ranks(world, [&](Communicator& comm) {
          AdapterHost host(config, comm);
          for (int s = 0; s < 4; ++s) host.step(s);
          EXPECT_TRUE(host.engine().recorded());
          for (ParamId p : host.engine().store().param_names().ids()) {
            const std::vector<float> got = host.engine().store().read_tensor(p, "master");
            const std::vector<double>& wanted = want[static_cast<size_t>(p.number())];
            ASSERT_EQ(got.size(), wanted.size());
            for (size_t e = 0; e < got.size(); ++e)
              ASSERT_NEAR(got[e], wanted[e], 2e-6) << p.number() << " of " << e;
          }
        });
      }
    }
  }
}

// Each rank holds its part of the base in the compute type, in the tier of parameters, and nothing
// else of it.
TEST_F(HostWithAdapters, TheBaseIsCutAndOffloadedWithoutGradientMasterOrState) {
  constexpr int64_t kAdapters = kLayers * 2 * kRank * kWidth, kBase = kLayers * kWidth * kWidth;
  // Room for the padding of buckets.
  constexpr int64_t kPadding = 4 * 256;
  for (int world : {2, 3}) {
    for (Tier tier : {Tier::device, Tier::host}) {
      Config config = host_config(3, world, folder_.path());
      config.compute = DS_DTYPE_BF16;
      config.optimizer.type = "AdamW";
      config.zero.param_tier = config.zero.optimizer_tier = tier;
      run_ranks(world, [&](Communicator& comm) {
        AdapterHost host(config, comm);
        for (int s = 0; s < 3; ++s) host.step(s);
        int64_t params = 0;
        for (const auto& [place, bytes] : host.engine().store().state_bytes()) {
          const auto& [where, kind] = place;
          if (kind == "param") {
            params += bytes;
            EXPECT_TRUE(where == tier || tier == Tier::device) << tier_name(where);
          } else {
            EXPECT_LE(bytes, 4 * (kAdapters / world + kPadding)) << kind;
          }
        }
        EXPECT_GE(params, 2 * kBase / world);
        EXPECT_LE(params, 2 * ((kBase + kAdapters) / world + kPadding));
        // The base is what it was, and the adapters have moved.
        const std::vector<std::vector<float>> before = initial();
        for (ParamId p : host.engine().store().param_names().ids()) {
          const bool same = host.engine().store().read_tensor(p, "param") ==
                            before[static_cast<size_t>(p.number())];
          EXPECT_EQ(same, p.number() % 3 == 0) << p.number();
        }
      });
    }
  }
}

}  // namespace
}  // namespace ds::test
