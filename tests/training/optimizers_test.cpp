// Tests optimizers on many layouts of states, except the compressed optimizers: equal bits over
// stages, tiers and ranks, with groups and with frozen parameters, in one run and resumed on
// another layout. optimizer_semantics_test.cpp and tests/conformance check the values.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/base/hash.h"
#include "support/ranks.h"
#include "support/same_bits.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

constexpr Tier kTiers[] = {Tier::device, Tier::host, Tier::nvme};

// The parameter is "AdamW" or another type, optionally with a suffix: "AdamW_u8" has states in
// 8-bit codes, "AdamW_bf16" bf16 states, and "AdamW_bf16_masters" also bf16 masters, which are
// rounded stochastically. "Muon_standard" orthogonalizes by the method "standard".
class Optimizers : public testing::TestWithParam<std::string> {
 protected:
  Point point() const {
    Point p;
    const std::string name = GetParam();
    p.optimizer = name.substr(0, name.find('_'));
    if (name.find("bf16") != name.npos) p.states = DS_DTYPE_BF16;
    p.standard = name == "Muon_standard";
    if (name.find("u8") != name.npos) p.states = DS_DTYPE_U8;
    if (name.find("masters") != name.npos) p.masters = DS_DTYPE_BF16;
    p.bucket_size = 3000;
    return p;
  }
};

TEST_P(Optimizers, SameBitsOverStagesTiersAndRanks) {
  for (int world : {2, 3}) {
    Point first = point();
    first.world = world;
    first.leaves = 2 * world;
    first.groups = true;
    const std::string expected = train_threads(first, 4).bits();
    int i = 0;
    for (int stage : {1, 2, 3}) {
      for (Tier tier : kTiers) {
        Point p = first;
        p.stage = stage;
        p.tier = tier;
        p.threads = 1 + i % 2;
        p.overlap = i % 3 != 0;
        if (i++ % 2 == 1) p.chaos = static_cast<uint64_t>(i);
        EXPECT_EQ(train_threads(p, 4).bits(), expected) << p.name();
      }
    }
    Point apart = first;
    apart.stage = 2;
    apart.tier = Tier::host;
    apart.separate = 3;
    EXPECT_EQ(train_threads(apart, 4).bits(), expected) << apart.name();
  }
}

TEST_P(Optimizers, SameBitsOnAnyNumberOfRanks) {
  for (DType compute : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
    Point one = point();
    if (compute != one.compute && one.masters != DS_DTYPE_F32) continue;
    one.world = 1;
    one.reproducible = true;
    one.compute = compute;
    const std::string expected = train_threads(one, 3).hash;
    for (int world : {2, 4}) {
      Point p = one;
      p.world = world;
      p.stage = world == 2 ? 3 : 1;
      EXPECT_EQ(train_threads(p, 3).hash, expected) << p.name();
    }
  }
}

struct Part {
  std::string hash, path;
};

// Hashes masters, states and parameters, but not gradients: frozen parameters have none.
std::string hash_of_states(StateStore& store) {
  Hash128 hash;
  std::vector<std::string> kinds = store.state_kinds();
  kinds.emplace_back("param");
  for (const std::string& kind : kinds) {
    for (size_t p = 0; p < store.param_names().size(); ++p) {
      std::vector<float> tensor = store.read_tensor(ParamId(p), kind);
      hash.update(tensor.data(), tensor.size() * sizeof(float));
    }
  }
  return hash.hex();
}

// Trains steps [begin, end) after loading `from`, then saves to `to`. An empty path is neither
// loaded nor saved.
Part train_part(const Point& p, int begin, int end, const std::string& from,
                const std::string& to) {
  Part out;
  run_ranks(p.world, [&](Communicator& comm) {
    EngineOptions options;
    set_device(options, p);
    Config config = config_of(p);
    config.frozen = {"h.0.ln_*"};
    Engine engine(config, graph_of(p), comm, options);
    if (!from.empty()) engine.checkpoints().load(from);
    const std::vector<int32_t> thawed{2};
    for (int s = begin; s < end; ++s) {
      if (s == 4) engine.trained().freeze(thawed, 0);
      train_step(p, engine, s);
    }
    std::string path = to.empty() ? "" : engine.checkpoints().save(to);
    std::string hash = hash_of_states(engine.store());
    if (comm.rank() == 0) out = {hash, path};
  });
  return out;
}

TEST_P(Optimizers, ResumesExactlyOnAnotherLayout) {
  Point first = point();
  first.reproducible = true;
  first.stage = 1;
  const std::string expected = train_part(first, 0, 20, "", "").hash;
  TempFolder folder;
  Part half = train_part(first, 0, 10, "", folder.path());
  int i = 0;
  for (Tier tier : kTiers) {
    Point p = first;
    p.stage = i == 0 ? 3 : i;
    p.tier = tier;
    p.world = i == 1 ? 1 : 4;
    ++i;
    EXPECT_EQ(train_part(p, 10, 20, half.path, "").hash, expected) << p.name();
  }
}

TEST_P(Optimizers, FrozenParametersDoNotChange) {
  Point p = point();
  Point other = p;
  other.stage = 3;
  other.tier = Tier::host;
  EXPECT_EQ(train_part(p, 0, 8, "", "").hash, train_part(other, 0, 8, "", "").hash);
}

// The random bits of stochastic rounding depend on the parameter and its element, not on the
// bucket.
TEST(OptimizersRounded, BitsDoNotDependOnBuckets) {
  Point p;
  p.states = p.masters = DS_DTYPE_BF16;
  const std::string expected = train_threads(p, 3).hash;
  for (int64_t size : {700, 3000, 20000}) {
    Point other = p;
    other.bucket_size = size;
    other.stage = 3;
    EXPECT_EQ(train_threads(other, 3).hash, expected) << other.name();
  }
  Point seed = p;
  seed.seed = 8;
  seed.dropout = p.dropout = 0;
  EXPECT_NE(train_threads(seed, 1).hash, train_threads(p, 1).hash);
}

INSTANTIATE_TEST_SUITE_P(All, Optimizers,
                         testing::Values("Muon", "Muon_standard", "AdamW_u8", "AdamW_u8_masters",
                                         "AdamW", "SGD", "Lion", "Adagrad", "Lamb", "AdamW_bf16",
                                         "AdamW_bf16_masters", "Lion_bf16_masters", "SGD_bf16",
                                         "Adagrad_bf16"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ds::test
