// Trains with libds_cuda.so itself, on the fake driver and with its device functions compiled for
// this CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "comm/comm_counts.h"
#include "core/base/error.h"
#include "core/device/device.h"
#include "core/device/named_device.h"
#include "cuda/fake/fake_nccl.h"
#include "engine/engine.h"
#include "engine/numerics.h"
#include "support/errors.h"
#include "support/fake_cuda.h"
#include "support/ranks.h"
#include "support/same_bits.h"

namespace ds::test {
namespace {

struct Trained {
  std::vector<double> losses;
  std::string hash;
  // Calls and bytes of each kind of collective and copy.
  std::map<std::string, std::pair<int64_t, int64_t>> moved;
  bool operator==(const Trained&) const = default;
};

// Trains a point on a device. "cuda:*" assigns each rank its own GPU. transport "shm": the ranks
// are threads that communicate as processes do, so that collectives are staged through the host.
Trained train(const Point& p, const std::string& device, int steps = 2,
              const char* transport = "threads",
              const std::function<void(int rank, size_t instr)>& before = {}) {
  std::vector<Trained> ranks(static_cast<size_t>(p.world));
  auto body = [&](Communicator& comm) {
    Config config = config_of(p);
    config.device = device == "cuda:*" ? "cuda:" + std::to_string(comm.rank()) : device;
    EngineOptions options;
    if (before) options.before_instr = [&](size_t instr) { before(comm.rank(), instr); };
    Engine engine(config, graph_of(p), comm, options);
    Trained& own = ranks[static_cast<size_t>(comm.rank())];
    const auto at_first = engine.runtime().ledger();
    for (int step = 0; step < steps; ++step) own.losses.push_back(train_step(p, engine, step).loss);
    for (const auto& [name, count] : engine.runtime().ledger()) {
      const auto found = at_first.find(name);
      const CommCount begun = found == at_first.end() ? CommCount() : found->second;
      if (count.calls == begun.calls && count.bytes == begun.bytes) continue;
      own.moved[name] = {count.calls - begun.calls, count.bytes - begun.bytes};
    }
    own.hash = state_hash(engine.store());
  };
  run_ranks(p.world, body, transport);
  for (const Trained& rank : ranks) EXPECT_EQ(rank.losses, ranks[0].losses);
  return ranks[0];
}

class FakeCudaTraining : public testing::Test {
 protected:
  void SetUp() override {
    if (!FakeCuda::find()) GTEST_SKIP() << "the plugin is not built";
    FakeCuda::find()->fail("");
  }
};

Point small() {
  Point p;
  p.world = 1;
  p.compute = DS_DTYPE_F32;
  return p;
}

Point three_ranks() {
  Point p = small();
  p.stage = 3;
  p.world = 3;
  p.leaves = 3;
  return p;
}

TEST_F(FakeCudaTraining, ATinyGptLearnsAsOnTheCpu) {
  for (DType compute : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
    Point p = small();
    p.compute = compute;
    Trained there = train(p, "cuda:0"), here = train(p, "cpu");
    double off = compute == DS_DTYPE_F32 ? 1e-5 : 2e-2;
    for (size_t i = 0; i < here.losses.size(); ++i)
      EXPECT_NEAR(there.losses[i], here.losses[i], off) << compute;
  }
}

TEST_F(FakeCudaTraining, Tf32AffectsProductsOfF32AndTheNumericsKey) {
  for (DType compute : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
    Point p = small();
    p.compute = compute;
    double losses[2] = {};
    std::string keys[2];
    for (const bool tf32 : {false, true}) {
      run_ranks(1, [&](Communicator& comm) {
        Config config = config_of(p);
        config.device = "cuda:0";
        config.tf32 = tf32;
        Engine engine(config, graph_of(p), comm, {});
        losses[tf32] = train_step(p, engine, 0).loss;
        keys[tf32] = engine.checkpoints().numerics_key();
      });
    }
    EXPECT_EQ(losses[0] == losses[1], compute != DS_DTYPE_F32) << losses[0];
    EXPECT_NEAR(losses[0], losses[1], 1e-3 * losses[0]);
    EXPECT_EQ(numerics_difference({keys[0], "there"}, {keys[1], "here"}),
              "device sm_90/132/cuBLASLt-130002 there, sm_90/132/cuBLASLt-130002/tf32 here");
  }
}

// Covers each stage, tier and number of ranks at least once. As on the CPU, one rank adds its
// leaves in another order than several ranks do, so only its first loss must equal theirs.
TEST_F(FakeCudaTraining, StagesTiersAndRanksHaveTheSameBits) {
  Point p = small();
  const Trained one = train(p, "cuda:0");
  p.world = 2;
  const Trained two = train(p, "cuda:0");
  EXPECT_EQ(one.losses[0], two.losses[0]);
  EXPECT_NEAR(one.losses[1], two.losses[1], 1e-5);
  struct Case {
    int stage;
    Tier tier;
    int world;
  };
  for (const Case& c : {Case{1, Tier::host, 2}, Case{2, Tier::nvme, 1}, Case{3, Tier::device, 2},
                        Case{3, Tier::host, 4}, Case{3, Tier::nvme, 2}}) {
    p.stage = c.stage;
    p.tier = c.tier;
    p.world = c.world;
    const Trained some = train(p, "cuda:0");
    const Trained& like = c.world == 1 ? one : two;
    EXPECT_EQ(some.losses, like.losses) << p.name();
    EXPECT_EQ(some.hash, like.hash) << p.name();
  }
}

// Kernels of the host update offloaded states, and kernels of the device all others.
TEST_F(FakeCudaTraining, MomentsInCodesHaveTheSameBitsOnEveryTier) {
  Point p = small();
  p.stage = 2;
  p.world = 2;
  p.states = DS_DTYPE_U8;
  for (DType masters : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
    p.masters = masters;
    p.compute = masters == DS_DTYPE_BF16 ? DS_DTYPE_BF16 : DS_DTYPE_F32;
    p.tier = Tier::device;
    const Trained here = train(p, "cuda:0");
    for (Tier tier : {Tier::host, Tier::nvme}) {
      p.tier = tier;
      const Trained there = train(p, "cuda:0");
      EXPECT_EQ(here.losses, there.losses) << p.name();
      EXPECT_EQ(here.hash, there.hash) << p.name();
    }
  }
}

TEST_F(FakeCudaTraining, LambHasTheSameBitsOnEveryTierAndStage) {
  Point p = small();
  p.world = 2;
  p.optimizer = "Lamb";
  const Trained here = train(p, "cuda:0");
  for (int stage : {1, 3}) {
    for (Tier tier : {Tier::device, Tier::host}) {
      p.stage = stage;
      p.tier = tier;
      const Trained there = train(p, "cuda:0");
      EXPECT_EQ(here.losses, there.losses) << p.name();
      EXPECT_EQ(here.hash, there.hash) << p.name();
    }
  }
}

// Covers collectives of whole groups and of parts of them. The counters must be equal as well.
TEST_F(FakeCudaTraining, CollectivesOnTheDeviceHaveTheBitsOfStagedCollectives) {
  const FakeCuda& fake = *FakeCuda::find();
  std::vector<Point> points;
  for (int stage : {0, 2, 3}) {
    Point& p = points.emplace_back(small());
    p.stage = stage;
    p.world = 4;
    p.compute = stage == 2 ? DS_DTYPE_BF16 : DS_DTYPE_F32;
    if (stage == 3) p.mics = 2, p.gather_by_node = true;
  }
  Point& quantized = points.emplace_back(small());
  quantized.world = 4, quantized.stage = 3, quantized.nodes = 2, quantized.hpz = 2;
  quantized.tier = Tier::host, quantized.quantized_weights = true, quantized.gradient_bits = 8;
  points.emplace_back(small());
  for (const Point& p : points) {
    fake.fail("");
    const Trained here = train(p, "cuda:0", 1);
    const int64_t launches = fake.counts().launches;
    fake.fail("");
    EXPECT_TRUE(here == train(p, "cuda:0", 1, "shm")) << p.name();
    const bool sums = p.world > 1 && p.gradient_bits == 0;
    EXPECT_EQ(launches > fake.counts().launches, sums)
        << p.name() << ": sums on the device are launches";
  }
}

// On linked GPUs, the library transfers exactly the bytes that the groups have counted and that the
// queues of a single GPU would have copied.
TEST_F(FakeCudaTraining, LinkedGpusHaveTheBitsOfOne) {
  const FakeCuda& fake = *FakeCuda::find();
  const FakeCuda::Live before = fake.live();
  struct Case {
    int stage, world;
    Tier tier = Tier::device;
    DType compute = DS_DTYPE_F32;
  };
  std::vector<Point> points;
  for (const Case& c :
       {Case{0, 3}, Case{1, 4, Tier::host}, Case{2, 2, Tier::nvme, DS_DTYPE_BF16}, Case{3, 3}}) {
    Point& p = points.emplace_back(small());
    p.stage = c.stage, p.world = c.world, p.tier = c.tier, p.compute = c.compute;
    if (c.world == 3) p.leaves = 3;
  }
  Point& parts = points.emplace_back(small());
  parts.world = 4, parts.stage = 3, parts.mics = 2, parts.gather_by_node = true;
  Point& quantized = points.emplace_back(small());
  quantized.world = 4, quantized.stage = 3, quantized.nodes = 2, quantized.hpz = 2;
  quantized.tier = Tier::host, quantized.quantized_weights = true, quantized.gradient_bits = 8;
  for (const Point& p : points) {
    const Trained one = train(p, "cuda:0", 1);
    for (const char* transport : {"threads", "shm"}) {
      fake.fail_links("");
      const Trained own = train(p, "cuda:*", 1, transport);
      EXPECT_EQ(one.losses, own.losses) << p.name() << " over " << transport;
      EXPECT_EQ(one.hash, own.hash) << p.name() << " over " << transport;
      EXPECT_EQ(one.moved, own.moved) << p.name() << " over " << transport;
      EXPECT_GT(fake.link_counts().calls, 0) << p.name();
      EXPECT_EQ(fake.link_counts().misuses, 0) << p.name();
      EXPECT_EQ(fake.link_counts().aborts, 0) << p.name();
    }
    EXPECT_EQ(fake.live(), before) << p.name();
  }
}

// Memory that the library allocates is a separate row of the overhead, outside the plan.
TEST_F(FakeCudaTraining, BuffersOfLinksAreListedInTheOverhead) {
  const Point p = three_ranks();
  run_ranks(p.world, [&](Communicator& comm) {
    Config config = config_of(p);
    config.device = "cuda:" + std::to_string(comm.rank());
    const Engine engine(config, graph_of(p), comm, {});
    EXPECT_EQ(engine.runtime().overhead().bytes("links between devices"), kFakeNcclBytes);
  });
}

// The library fails at some call, or a stream never ends: the message names the rank and the
// collective, nothing hangs, and all memory is freed.
TEST_F(FakeCudaTraining, LinksThatFailPoisonTheEngine) {
  const FakeCuda& fake = *FakeCuda::find();
  const FakeCuda::Live before = fake.live();
  const Point p = three_ranks();
  fake.fail_links("");
  train(p, "cuda:*", 1);
  const int64_t calls = fake.link_counts().calls / p.world;
  for (const char* kind : {"call", "async"}) {
    for (int64_t part = 0; part < 4; ++part) {
      const int64_t at = std::max<int64_t>(1, calls * (2 * part + 1) / 8);
      fake.fail_links(std::string(kind) + ":1:" + std::to_string(at));
      const std::string text = message_of([&] { train(p, "cuda:*", 1); });
      expect_names(text, {"rank 0", "ended by rank 1: rank 1 in ", "its link: "});
      EXPECT_GE(fake.link_counts().aborts, p.world) << text;
      EXPECT_EQ(fake.live(), before) << text;
    }
  }
  fake.fail_links("");
}

// Makes each rank fail before various instructions: the others must name it and the cause, and all
// memory must be freed.
void let_ranks_fail(const std::string& device) {
  const FakeCuda& fake = *FakeCuda::find();
  const FakeCuda::Live before = fake.live();
  const Point p = three_ranks();
  std::atomic<int64_t> issued = 0;
  train(p, device, 1, "threads", [&](int rank, size_t) { issued += rank == 0 ? 1 : 0; });
  for (int64_t part = 0; part < 6; ++part) {
    const int64_t last = issued * part / 6;
    const int bad = static_cast<int>(part % 2) + 1;
    std::atomic<int64_t> seen = 0;
    const std::string text = message_of([&] {
      train(p, device, 1, "threads", [&](int rank, size_t) {
        if (rank == bad && seen++ == last) throw Error(DS_ERROR_IO, "the disk is full");
      });
    });
    expect_names(text, {"rank 0, step instruction", "ended by rank " + std::to_string(bad),
                        "the disk is full"});
    EXPECT_EQ(fake.live(), before) << text;
  }
}

TEST_F(FakeCudaTraining, ARankThatFailsEndsAllRanks) { let_ranks_fail("cuda:0"); }

TEST_F(FakeCudaTraining, ARankOnASeparateGpuThatFailsEndsAllRanks) { let_ranks_fail("cuda:*"); }

TEST_F(FakeCudaTraining, AllResourcesAreFreed) {
  const FakeCuda& fake = *FakeCuda::find();
  const FakeCuda::Live before = fake.live();
  train(small(), "cuda:0", 1);
  EXPECT_EQ(fake.live(), before);
}

// An engine whose device fails at any call reports the error and is poisoned. Nothing hangs, and
// all memory is freed.
TEST_F(FakeCudaTraining, AnErrorAtAnyCallPoisonsTheEngine) {
  const FakeCuda& fake = *FakeCuda::find();
  const FakeCuda::Live before = fake.live();
  Point p = small();
  p.stage = 3;
  p.world = 2;
  fake.fail("");
  train(p, "cuda:0", 1);
  const FakeCuda::Counts all = fake.counts();
  struct Injected {
    std::string kind;
    int64_t calls;
    std::string message;
  };
  for (const Injected& in : {Injected{"memory", all.creates, "are free"},
                             Injected{"launch", all.launches, "unspecified launch failure"},
                             Injected{"lost", all.calls, "the device is unavailable"}}) {
    for (int64_t part = 0; part < 4; ++part) {
      const int64_t at = std::max<int64_t>(1, in.calls * (2 * part + 1) / 8);
      const std::string error = in.kind + ":" + std::to_string(at);
      fake.fail(error);
      std::string text;
      try {
        train(p, "cuda:0", 1);
      } catch (const std::exception& caught) {
        text = caught.what();
      }
      EXPECT_NE(text.find(in.message), std::string::npos) << error << ": " << text;
      fake.fail("");
      EXPECT_EQ(fake.live(), before) << error;
    }
  }
  EXPECT_EQ(train(p, "cuda:0", 1).losses.size(), 1U) << "the next engine trains";
}

// A block may need more shared memory than the GPU has, such as heads of 256 columns on a GPU with
// 99 KiB.
TEST_F(FakeCudaTraining, ABlockThatNeedsTooMuchSharedMemoryIsRefused) {
  const auto refusal = [](const char* shared) {
    setenv("DS_FAKE_CUDA_SHARED", shared, 1);
    return message_of([] { train(small(), "cuda:0", 1); }, DS_ERROR_UNSUPPORTED);
  };
  // Refused when the engine is created.
  expect_names(refusal("4096"), {"no kernel that runs 'attention", "heads of ",
                                 " bytes of shared memory per block", "the device has 4096"});
  // Refused only at a launch, because every real GPU has enough shared memory for this op.
  expect_names(refusal("42800"),
               {"'embedding_dw' needs ", " bytes of shared memory per block", "(sm_90) has 42800"});
  unsetenv("DS_FAKE_CUDA_SHARED");
  EXPECT_EQ(train(small(), "cuda:0", 1).losses.size(), 1U);
}

// If a context cannot be made current, not even to free resources, the process must survive. Pinned
// pages are then lost, so each case runs in a separate process.
TEST_F(FakeCudaTraining, AContextThatCannotBeEnteredIsAnError) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto error_of = [](int64_t at) {
    FakeCuda::find()->fail("enter:" + std::to_string(at));
    try {
      train(small(), "cuda:0", 1);
    } catch (const std::exception& caught) {
      return std::string(caught.what());
    }
    return std::string("no error");
  };
  for (int64_t at : {1, 2, 20, 60}) {
    const auto told = [&] {
      const std::string text = error_of(at);
      std::fprintf(stderr, "%s\n", text.c_str());
      std::exit(text.find("cuCtxPushCurrent") == std::string::npos ? 1 : 0);
    };
    EXPECT_EXIT(told(), testing::ExitedWithCode(0), "cuCtxPushCurrent") << at;
  }
  const auto end_outside = [] {  // with graphs and links
    Point p = three_ranks();
    run_ranks(p.world, [&](Communicator& comm) {
      Config config = config_of(p);
      config.device = "cuda:" + std::to_string(comm.rank());
      Engine engine(config, graph_of(p), comm, {});
      for (int step = 0; step < 3; ++step) train_step(p, engine, step);
      comm.barrier("trained");
      if (comm.rank() == 0) FakeCuda::find()->fail("enter:1");
      comm.barrier("outside");
    });
    std::exit(0);
  };
  EXPECT_EXIT(end_outside(), testing::ExitedWithCode(0), "");
}

// A device that fails while it is being opened frees all its memory.
TEST_F(FakeCudaTraining, AFailedOpenFreesItsMemory) {
  const FakeCuda& fake = *FakeCuda::find();
  const FakeCuda::Live before = fake.live();
  int64_t at = 0;
  for (bool opened = false; !opened;) {
    fake.fail("lost:" + std::to_string(++at));
    try {
      make_device("cuda:0");
      opened = true;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("the device is unavailable"), std::string::npos);
    }
    fake.fail("");
    EXPECT_EQ(fake.live(), before) << at;
  }
  EXPECT_GT(at, 10) << "a call for each module, at least";
}

}  // namespace
}  // namespace ds::test
