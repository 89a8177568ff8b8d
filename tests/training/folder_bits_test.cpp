// Models from Hugging Face folders have equal bits over stages, tiers and shard groups and, with
// `reproducible`, over numbers of ranks.
#include <gtest/gtest.h>

#include <set>

#include "engine/engine.h"
#include "support/hf_golden.h"
#include "support/ranks.h"
#include "support/same_bits.h"

namespace ds::test {
namespace {

constexpr int kSteps = 3;

// The recorded batch, repeated for the leaves of one rank in one step. The tokens and targets are
// shifted so that no two leaves are equal.
class LeafBatch {
 public:
  LeafBatch(const HfGolden& golden, const HfModel& model, int64_t step, int64_t first,
            int64_t leaves, int64_t stride) {
    for (ValueId id : model.graph.inputs) {
      const std::string& name = model.graph.values[id].name;
      Tensor recorded = golden.input(model, name);
      auto numel = recorded.numel();
      const auto* ids = reinterpret_cast<const int32_t*>(recorded.bytes().data());
      data_.emplace_back();
      for (int64_t m = 0; m < leaves; ++m) {
        int64_t leaf = first + m * stride, shift = 5 * leaf + 11 * step;
        for (int64_t i = 0; i < numel; ++i) {
          bool moves = (name == "tokens" || name == "targets") && ids[i] >= 0;
          data_.back().push_back(moves ? static_cast<int32_t>((ids[i] + shift) % kWords) : ids[i]);
        }
      }
    }
    for (const std::vector<int32_t>& d : data_)
      views.push_back({d.data(), DS_DTYPE_I32, static_cast<int64_t>(d.size())});
  }
  std::vector<InputView> views;

 private:
  // The vocabulary of every folder has at least this many words.
  static constexpr int64_t kWords = 50;
  std::vector<std::vector<int32_t>> data_;
};

std::string train_folder(const std::string& folder, const Point& p) {
  std::string path = golden_path(folder);
  HfGolden golden(path);
  std::vector<std::string> hashes(static_cast<size_t>(p.world));
  run_ranks(p.world, [&](Communicator& comm) {
    HfModel model = golden.build();
    EngineOptions options;
    options.threads = p.threads;
    set_device(options, p);
    Engine engine(config_of(p), model.graph, comm, options);
    engine.checkpoints().load_weights(path);
    for (int s = 0; s < kSteps; ++s)
      engine.train_batch(
          LeafBatch(golden, model, s, comm.rank(), p.leaves / p.world, p.world).views);
    hashes[static_cast<size_t>(comm.rank())] = state_hash(engine.store());
  });
  for (const std::string& hash : hashes) EXPECT_EQ(hash, hashes[0]) << p.name();
  return hashes[0];
}

class FolderBits : public testing::TestWithParam<std::string> {};

TEST_P(FolderBits, AreTheSameOverStagesTiersAndGroups) {
  Point plain;
  plain.world = 4;
  plain.leaves = 8;
  std::string expected = train_folder(GetParam(), plain);
  Point other = plain;
  other.leaves = 4;
  EXPECT_NE(train_folder(GetParam(), other), expected) << "the data do not matter";
  std::vector<Point> points;
  for (int stage = 0; stage <= 3; ++stage) {
    for (Tier tier : {Tier::device, Tier::nvme}) points.push_back({.stage = stage, .tier = tier});
    points.push_back({.stage = stage, .tier = Tier::host, .nodes = 2});
  }
  points.push_back({.stage = 3, .mics = 2});
  points.push_back({.stage = 3, .tier = Tier::host, .nodes = 2, .hpz = 2});
  int i = 0;
  for (Point& p : points) {
    p.world = plain.world;
    p.leaves = plain.leaves;
    p.threads = 1 + i % 2;
    p.overlap = i % 3 != 0;
    if (i % 4 == 2) p.separate = static_cast<uint64_t>(i);
    if (i++ % 2 == 1) p.chaos = static_cast<uint64_t>(i);
    EXPECT_EQ(train_folder(GetParam(), p), expected) << p.name();
  }
}

TEST_P(FolderBits, AreReproducibleOverRanks) {
  std::set<std::string> hashes;
  for (int world : {1, 2, 4, 8}) {
    Point p;
    p.world = world;
    p.leaves = 8;
    p.stage = world == 1 ? 0 : 3;
    p.nodes = world == 8 ? 2 : 0;
    p.tier = world == 4 ? Tier::nvme : Tier::device;
    p.reproducible = true;
    hashes.insert(train_folder(GetParam(), p));
  }
  EXPECT_EQ(hashes.size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Models, FolderBits, testing::Values("gpt2", "llama"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ds::test
