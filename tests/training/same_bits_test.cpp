#include "support/same_bits.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <set>

#include "checkpoint/agree.h"
#include "comm/communicator.h"
#include "core/base/plugin.h"
#include "core/base/trace.h"
#include "support/processes.h"
#include "support/temp_folder.h"
#include "training/same_bits_points.h"

namespace ds::test::same_bits_test {
namespace {

constexpr int kSteps = 20;
// Number of steps where a run of kSteps would take too long.
constexpr int kFewSteps = 8;

// Returns the outcome with which other points are compared. Points that must be equal are compared
// by Outcome::bits(), and points that must differ by their payload hashes only.
const Outcome& reference() {
  static const Outcome outcome = [] {
    Point p;
    p.emulate = false;
    return train_threads(p, kSteps);
  }();
  return outcome;
}

// A fixture that counts the compared points and prints their number and time at the end of the
// suite. With DS_SAME_BITS_FILE, each point also appends a line with its name and hashes to that
// file, so that two builds can be compared.
class SameBits : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    begin_ = now_ns();
    if (const char* path = std::getenv("DS_SAME_BITS_FILE")) lines_.open(path, std::ios::app);
  }
  static void TearDownTestSuite() {
    lines_.close();
    fmt::print("same bits: {} points with ranks as threads, {} with ranks as processes, {:.1f} s\n",
               threads_, processes_, static_cast<double>(now_ns() - begin_) * 1e-9);
  }
  static Outcome outcome_of(const Point& p, int steps = kSteps) {
    ++threads_;
    Outcome out = train_threads(p, steps);
    note("threads", p, out.bits());
    return out;
  }
  // Returns the bits of a few steps of the plain run with that many ranks.
  static const std::string& expected_of(int world) {
    static std::map<int, std::string> known;
    std::string& bits = known[world];
    if (bits.empty()) bits = train_threads(odd_base(world), kFewSteps).bits();
    return bits;
  }
  static std::string bits_of(const Point& p, int steps = kSteps) {
    return outcome_of(p, steps).bits();
  }
  static void expect_processes(const Point& p, const std::string& bits) {
    expect_reports("processes", p, bits, train_processes(p, kSteps));
  }
  static void expect_reports(const char* ranks, const Point& p, const std::string& bits,
                             const std::vector<RankReport>& reports) {
    ++processes_;
    for (const RankReport& r : reports)
      EXPECT_TRUE(r.ok && r.text == bits) << ranks << ", " << p.name() << ": " << r.text;
    note(ranks, p, reports[0].text);
  }
  static void note(const char* ranks, const Point& p, const std::string& bits) {
    if (!lines_.is_open()) return;
    lines_ << ranks << ' ' << p.name() << ": " << bits << std::endl;
    EXPECT_TRUE(lines_.good()) << "DS_SAME_BITS_FILE has lost a line";
  }

 private:
  static inline std::ofstream lines_;
  static inline int64_t begin_ = 0;
  static inline int threads_ = 0, processes_ = 0;
};

TEST_F(SameBits, OverStagesTiersOverlapThreadsAndOrders) {
  for (const Point& p : want_full() ? full_product() : cover())
    EXPECT_EQ(bits_of(p), reference().bits()) << p.name();
}

TEST_F(SameBits, InProcessesAsInThreads) {
  for (const Point& p : process_points(want_full())) expect_processes(p, reference().bits());
}

// If the number of ranks is not a power of two, the tree of sums has ranks without a neighbour.
TEST_F(SameBits, OnNumbersOfRanksThatAreNotPowersOfTwo) {
  for (int world : kOddWorlds) {
    for (const Point& p : want_full() ? full_product(odd_base(world)) : odd_cover(world))
      EXPECT_EQ(outcome_of(p, kFewSteps).bits(), expected_of(world)) << p.name();
  }
}

// Returns points that reduce gradients once per step. Their bits differ from those of a reduction
// in every micro-step, but are equal for both stages and every tier, bucket, order, device and
// level.
std::vector<Point> boundary_points(int world) {
  std::vector<Point> points;
  int i = world;
  for (int stage : {0, 1}) {
    for (Tier tier : kTiers) {
      for (int variant = 0; variant < (want_full() ? 6 : 1); ++variant, ++i) {
        Point p{
            .stage = stage, .tier = tier, .world = world, .boundary = true, .leaves = 3 * world};
        p.overlap = i % 2 == 0;
        p.threads = 1 + i / 2 % 2;
        p.emulate = i % 4 != 1;
        p.bucket_size = i % 3 == 0 ? 4000 : 500000000;
        if (i % 3 == 1) p.chaos = static_cast<uint64_t>(1 + i % 8);
        if (i % 3 == 2) p.separate = static_cast<uint64_t>(i % 2 * (1 + i));
        if (world == 4) p.nodes = 1 + i % 2;
        points.push_back(p);
      }
    }
  }
  return points;
}

TEST_F(SameBits, WithReductionAtTheBoundary) {
  for (int world : {1, 3, 4}) {
    Point plain{.world = world, .boundary = true, .leaves = 3 * world};
    const Outcome expected = outcome_of(plain, kFewSteps);
    for (const Point& p : boundary_points(world))
      EXPECT_EQ(outcome_of(p, kFewSteps).bits(), expected.bits()) << p.name();
    plain.boundary = false;
    EXPECT_NE(outcome_of(plain, kFewSteps).hash, expected.hash)
        << world << " ranks: sums are rounded";
  }
  Point written{.stage = 1, .boundary = true, .leaves = 24}, repeated = written;
  repeated.written_out = 0;
  EXPECT_EQ(outcome_of(repeated, kFewSteps).bits(), outcome_of(written, kFewSteps).bits());
}

// Uses a device whose memory host code cannot access, with a thread for each queue: each stage with
// each tier, on 1 to 3 ranks, with and without jitter.
TEST_F(SameBits, OnADeviceWithSeparateMemory) {
  int i = 0;
  for (int stage = 0; stage <= 3; ++stage) {
    for (Tier tier : kTiers) {
      for (int variant = 0; variant < (want_full() ? 12 : 1); ++variant, ++i) {
        Point p = i % 3 == 0 ? Point{} : odd_base(i % 3 == 1 ? 3 : 1);
        p.stage = stage;
        p.tier = tier;
        p.overlap = i / 2 % 2 == 0;
        p.threads = 1 + i / 3 % 2;
        p.emulate = i % 5 != 1;
        p.separate = static_cast<uint64_t>(i % 2 * (1 + i));
        if (p.world == 2) {
          EXPECT_EQ(bits_of(p), reference().bits()) << p.name();
        } else {
          EXPECT_EQ(outcome_of(p, kFewSteps).bits(), expected_of(p.world)) << p.name();
        }
      }
    }
  }
}

// Ranks are processes, over shared memory and over each transport. Started by mpirun, this process
// is one rank and trains the points whose number of ranks is mpirun's.
class SameBitsOver : public SameBits, public testing::WithParamInterface<std::string> {
 protected:
  static void train_mpi() {
    auto comm = create_communicator("env", {.timeout_ms = 60000});
    for (const Point& p : odd_process_points(comm->size(), {0, 3}, want_full())) {
      std::string bits = train_rank(p, kFewSteps, *comm).bits();
      agree_equal(*comm, "the bits", bits);
      if (comm->rank() == 0) expect_reports("mpi", p, expected_of(p.world), {{true, bits, 0}});
    }
  }
};

TEST_P(SameBitsOver, EachTransportIfRanksAreNotAPowerOfTwo) {
  const std::string& transport = GetParam();
  if (transport == "mpi") return train_mpi();
  if (transport == "tcp" && !load_transport("tcp"))
    GTEST_SKIP() << "the transport tcp is not built";
  TempFolder folder;
  bool tcp = transport == "tcp";
  for (int world : kOddWorlds) {
    for (const Point& p : odd_process_points(
             world, tcp ? std::vector<int>{0, 3} : std::vector<int>{0, 1, 2, 3}, want_full())) {
      expect_reports(transport.c_str(), p, expected_of(world),
                     tcp ? train_processes(p, kFewSteps, "tcp://" + folder / "meet")
                         : train_processes(p, kFewSteps));
    }
  }
}

TEST_P(SameBitsOver, ATransportWithReductionAtTheBoundary) {
  const std::string& transport = GetParam();
  if (transport == "tcp" && !load_transport("tcp"))
    GTEST_SKIP() << "the transport tcp is not built";
  std::unique_ptr<Communicator> mpi;
  if (transport == "mpi") mpi = create_communicator("env", {.timeout_ms = 60000});
  const int world = mpi ? mpi->size() : 3;
  const Point plain{.world = world, .boundary = true, .leaves = 3 * world};
  Point p = plain;
  p.stage = 1;
  p.tier = Tier::host;
  const std::string expected = train_threads(plain, kFewSteps).bits();
  TempFolder folder;
  if (mpi) {
    const std::string bits = train_rank(p, kFewSteps, *mpi).bits();
    agree_equal(*mpi, "the bits", bits);
    if (mpi->rank() == 0) expect_reports("mpi", p, expected, {{true, bits, 0}});
    return;
  }
  expect_reports(transport.c_str(), p, expected,
                 transport == "tcp" ? train_processes(p, kFewSteps, "tcp://" + folder / "meet")
                                    : train_processes(p, kFewSteps));
}

// Points with far more ranks than cores are trained for this many steps.
constexpr int kManySteps = 2;
Point of_many(int world, int leaves, int stage) {
  Point p{.stage = stage, .world = world, .reproducible = true, .leaves = leaves};
  p.compute = DS_DTYPE_F32;
  return p;
}

TEST_F(SameBits, OnManyRanksAsOnFour) {
  const int world = want_full() ? 512 : 128;
  for (int stage : {0, 3}) {
    EXPECT_EQ(bits_of(of_many(world, world, stage), kManySteps),
              bits_of(of_many(4, world, 0), kManySteps))
        << stage;
  }
  const Point odd = of_many(96, 96, 3);
  EXPECT_EQ(bits_of(odd, kManySteps), bits_of(odd, kManySteps));
}

TEST_P(SameBitsOver, ATransportOfManyRanks) {
  const std::string& transport = GetParam();
  if (transport == "tcp" && !load_transport("tcp"))
    GTEST_SKIP() << "the transport tcp is not built";
  std::unique_ptr<Communicator> mpi;
  if (transport == "mpi") mpi = create_communicator("env", {.timeout_ms = 60000});
  const int most = want_full() ? 128 : 16;
  const int world = mpi ? mpi->size() : transport == "shm" ? 2 * most : most;
  TempFolder folder;
  for (int stage : {0, 3}) {
    const Point p = of_many(world, world, stage);
    const bool first = !mpi || mpi->rank() == 0;
    // Sums of leaves form one tree if the number of ranks is a power of two.
    const int few = world % 4 == 0 && std::has_single_bit(static_cast<unsigned>(world)) ? 4 : world;
    const std::string expected =
        first ? train_threads(of_many(few, world, 0), kManySteps).bits() : "";
    if (mpi) {
      const std::string bits = train_rank(p, kManySteps, *mpi).bits();
      agree_equal(*mpi, "the bits", bits);
      if (first) expect_reports("mpi", p, expected, {{true, bits, 0}});
    } else {
      expect_reports(transport.c_str(), p, expected,
                     transport == "tcp" ? train_processes(p, kManySteps, "tcp://" + folder / "meet")
                                        : train_processes(p, kManySteps));
    }
  }
}

// Between synchronisations, the ranks of 0/1 Adam differ; after this many steps they agree.
constexpr int kOneBitSteps = 11;

TEST_P(SameBitsOver, ATransportWithOneBitOptimizers) {
  const std::string& transport = GetParam();
  if (transport == "tcp" && !load_transport("tcp"))
    GTEST_SKIP() << "the transport tcp is not built";
  std::unique_ptr<Communicator> mpi;
  if (transport == "mpi") mpi = create_communicator("env", {.timeout_ms = 60000});
  TempFolder folder;
  int number = 0;
  for (int world : mpi ? std::vector<int>{mpi->size()} : std::vector<int>{2, 3, 4}) {
    for (const char* optimizer : {"OneBitAdam", "ZeroOneAdam", "OneBitLamb"}) {
      Point p = odd_base(world);
      p.leaves = 2 * world;
      p.optimizer = optimizer;
      const bool first = !mpi || mpi->rank() == 0;
      const std::string expected = first ? train_threads(p, kOneBitSteps).bits() : "";
      if (p.optimizer != "ZeroOneAdam") p.stage = 1;
      p.tier = kTiers[++number % 3];
      if (mpi) {
        const std::string bits = train_rank(p, kOneBitSteps, *mpi).bits();
        agree_equal(*mpi, "the bits", bits);
        if (first) expect_reports("mpi", p, expected, {{true, bits, 0}});
        continue;
      }
      const std::string url =
          transport == "tcp" ? "tcp://" + folder / "meet" + std::to_string(number) : "";
      expect_reports(
          transport.c_str(), p, expected,
          url.empty() ? train_processes(p, kOneBitSteps) : train_processes(p, kOneBitSteps, url));
    }
  }
}

std::vector<std::string> transports() {
  if (std::getenv("OMPI_COMM_WORLD_SIZE")) return {"mpi"};
  return {"shm", "tcp"};
}
INSTANTIATE_TEST_SUITE_P(All, SameBitsOver, testing::ValuesIn(transports()),
                         [](const auto& info) { return info.param; });

TEST_F(SameBits, OnAnyNumberOfRanksIfReproducible) {
  for (DType compute : {DS_DTYPE_BF16, DS_DTYPE_F32}) {
    std::set<std::string> bits;
    for (int i = 0; i < 16; ++i) {
      int world = 1 << (i / 4), stage = i % 4;
      Point p;
      p.compute = compute;
      p.reproducible = true;
      p.leaves = 8;
      p.world = world;
      p.stage = stage;
      p.tier = stage == 3 ? Tier::nvme : Tier::device;
      bits.insert(bits_of(p));
    }
    EXPECT_EQ(bits.size(), 1u) << dtype_name(compute);
  }
}

// Returns points with MiCS groups, hpZ groups and nodes, which must equal the plain partition over
// all ranks.
std::vector<Point> group_points(int world, bool full) {
  std::vector<Point> points;
  auto add = [&](Point p) {
    p.world = world;
    p.leaves = 2 * world;
    for (Tier tier : kTiers) {
      size_t n = points.size();
      if (!full && static_cast<int>(n % 3) != static_cast<int>(tier)) continue;
      p.tier = tier;
      p.threads = 1 + static_cast<int>(n % 2);
      p.overlap = n % 3 != 1;
      p.chaos.reset();
      if (n % 2 == 1) p.chaos = static_cast<uint64_t>(1 + n % 8);
      points.push_back(p);
      if (!full) return;
    }
  };
  for (int nodes = 1; nodes <= world; nodes *= 2) {
    for (int stage = 0; stage <= 3; ++stage) add({.stage = stage, .nodes = nodes});
    for (int shard = 2; shard < world; shard *= 2) {
      add({.stage = 3, .nodes = nodes, .mics = shard});
      add({.stage = 3, .nodes = nodes, .mics = shard, .gather_by_node = true});
      add({.stage = 3, .nodes = nodes, .hpz = shard});
    }
  }
  return points;
}

TEST_F(SameBits, OverShardGroupsAndNodes) {
  for (int world : {4, 8}) {
    Point plain;
    plain.world = world;
    plain.leaves = 2 * world;
    std::string expected = bits_of(plain);
    for (const Point& p : group_points(world, want_full()))
      EXPECT_EQ(bits_of(p), expected) << p.name();
    if (world > 4 && !want_full()) continue;
    for (Point p : {Point{.stage = 2, .nodes = 2},
                    Point{.stage = 3, .tier = Tier::host, .nodes = 2, .hpz = 2},
                    Point{.stage = 3, .tier = Tier::nvme, .mics = 2}}) {
      p.world = world;
      p.leaves = 2 * world;
      expect_processes(p, expected);
    }
  }
}

// If several ranks update copies of one part, each of them needs all the values that an optimizer
// computes from the whole part.
TEST_F(SameBits, OfOptimizersInShardGroupsAndOnNodes) {
  for (const char* optimizer : {"Lamb", "Muon", "Adagrad", "Lion", "SGD"}) {
    Point plain{.world = 4, .leaves = 4, .optimizer = optimizer};
    const std::string expected = outcome_of(plain, 3).bits();
    for (Point p : {Point{.stage = 3, .mics = 2},
                    Point{.stage = 3, .tier = Tier::host, .nodes = 2, .mics = 2},
                    Point{.stage = 3, .nodes = 2, .hpz = 2}, Point{.stage = 2, .nodes = 2}}) {
      p.world = p.leaves = 4;
      p.optimizer = optimizer;
      p.bucket_size = 3000;
      EXPECT_EQ(outcome_of(p, 3).bits(), expected) << p.name();
    }
  }
  Point plain{.world = 8, .leaves = 8, .optimizer = "Lamb"};
  const std::string expected = outcome_of(plain, 3).bits();
  for (int64_t shard : {2, 4}) {
    Point p = plain;
    p.stage = 3;
    p.mics = shard;
    EXPECT_EQ(outcome_of(p, 3).bits(), expected) << p.name();
  }
}

// SGD has different states and a different update instruction.
TEST_F(SameBits, OfSgdOverStagesTiersAndOrders) {
  std::set<std::string> bits, payloads;
  for (int stage = 0; stage <= 3; ++stage) {
    for (Tier tier : kTiers) {
      Point p;
      p.optimizer = "SGD";
      p.stage = stage;
      p.tier = tier;
      p.threads = 1 + stage % 2;
      if (tier != Tier::device) p.chaos = static_cast<uint64_t>(1 + stage);
      Outcome out = outcome_of(p);
      bits.insert(out.bits());
      payloads.insert(out.hash);
    }
  }
  EXPECT_EQ(bits.size(), 1u);
  EXPECT_FALSE(payloads.contains(reference().hash));
}

// Recomputed activations, including dropout, equal the kept activations of other points.
TEST_F(SameBits, WithRecomputedActivations) {
  for (int stage = 0; stage <= 3; ++stage) {
    for (const char* way : {"cheap", "layers"}) {
      Point p;
      p.recompute = way;
      p.stage = stage;
      p.tier = kTiers[static_cast<size_t>(stage) % std::size(kTiers)];
      p.world = stage == 1 ? 4 : 2;
      p.threads = 1 + stage % 2;
      p.reproducible = true;
      if (stage > 1) p.chaos = static_cast<uint64_t>(stage);
      Point kept = p;
      kept.recompute = "none";
      kept.stage = 0;
      kept.world = 2;
      kept.tier = Tier::device;
      kept.chaos.reset();
      EXPECT_EQ(outcome_of(p).bits(), outcome_of(kept).bits()) << p.name();
    }
  }
}

// Logits that are not rounded to bf16 give other bits, which are equal on every stage.
TEST_F(SameBits, WithAFusedHead) {
  std::set<std::string> bits, payloads;
  for (int stage = 0; stage <= 3; ++stage) {
    Point p;
    p.fused_head = "always";
    p.stage = stage;
    p.tier = stage < 2 ? Tier::device : Tier::host;
    p.threads = 1 + stage % 2;
    if (stage > 0) p.chaos = static_cast<uint64_t>(stage);
    Outcome out = outcome_of(p);
    bits.insert(out.bits());
    payloads.insert(out.hash);
  }
  EXPECT_EQ(bits.size(), 1u);
  EXPECT_FALSE(payloads.contains(reference().hash));
}

// Without `reproducible`, the order of additions depends on the number of ranks.
TEST_F(SameBits, DifferOverRanksUnlessReproducible) {
  Point one, four;
  one.world = 1;
  four.world = 4;
  one.leaves = four.leaves = 8;
  // In f32, the order of additions shows: eight bf16 values have an exact sum.
  one.compute = four.compute = DS_DTYPE_F32;
  EXPECT_NE(outcome_of(one).hash, outcome_of(four).hash);
}

TEST_F(SameBits, SeedDropoutClippingAndLeavesChangeTheBits) {
  Point seed, dropout, clipping, leaves;
  seed.seed = 8;
  dropout.dropout = 0;
  clipping.clipping = 0;
  leaves.leaves = 2;
  std::set<std::string> hashes{reference().hash};
  for (const Point& p : {seed, dropout, clipping, leaves}) hashes.insert(outcome_of(p).hash);
  EXPECT_EQ(hashes.size(), 5u);
}

TEST_F(SameBits, TheReferenceLearnsAndClips) {
  Point p;
  Outcome out = train_threads(p, kSteps);
  EXPECT_LT(out.losses.back(), out.losses.front() - 0.1);
  for (double norm : out.grad_norms) EXPECT_GT(norm, p.clipping) << "clipping is not exercised";
}

}  // namespace
}  // namespace ds::test::same_bits_test
