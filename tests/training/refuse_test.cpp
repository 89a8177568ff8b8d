// Tests calls and settings that an engine refuses, and whether the engine is usable afterwards.
#include <gtest/gtest.h>

#include <fstream>
#include <future>

#include "engine/delegate.h"
#include "engine/engine.h"
#include "optim/schedule.h"
#include "support/errors.h"
#include "support/initial.h"
#include "support/models.h"
#include "support/ranks.h"
#include "support/same_bits.h"
#include "support/temp_folder.h"

namespace ds::test::refuse_test {
namespace {

constexpr int64_t kWidth = 32, kRows = 8;

struct Inputs {
  std::vector<float> x = std::vector<float>(kRows * kWidth, 0.5f),
                     target = std::vector<float>(kRows * kWidth, 1.0f);
  std::vector<InputView> views() const {
    auto numel = static_cast<int64_t>(x.size());
    return {{x.data(), DS_DTYPE_F32, numel}, {target.data(), DS_DTYPE_F32, numel}};
  }
};

Config on_files(int stage, int64_t accumulation = 1, int world = 1) {
  Config c = make_config(stage, accumulation, world);
  c.zero.optimizer_tier = Tier::nvme;
  c.zero.nvme_path = scratch_folder();
  return c;
}

int64_t mapped_now() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0;
  file >> pages;
  return pages * 4096;
}

TEST(Refuse, ADelegateAllocatesItsMemoryWhenItStarts) {
  auto comm = create_communicator("self", {});
  std::vector<float> data{1, 2, 3, 4};
  DelegateEngine engine(make_config(0, 1, 1), *comm, with_values({data}));
  ParamId p = engine.add_param("w", {4});
  expect_names(message_of([&] { engine.store().read_tensor(p, "master"); }, DS_ERROR_STATE),
               {"ds_engine_start must come first"});
  EXPECT_EQ(engine.runtime().mapped(Tier::device), 0);
  engine.start();
  EXPECT_EQ(engine.store().read_tensor(ParamId(p), "master"), data);
  EXPECT_GT(engine.runtime().mapped(Tier::device), 0);
}

// A rank's parts are known only once all ranks have compiled, which a call on one rank cannot bring
// about.
TEST(Refuse, LocalPartsAreRefusedBeforeADelegateHasStarted) {
  run_ranks(2, [](Communicator& comm) {
    std::vector<float> data(1000, 1.0f);
    DelegateEngine engine(make_config(2, 1, 2), comm, with_values({data}));
    expect_names(
        message_of([&] { engine.store().local_range(ParamId(0)); }, DS_ERROR_INVALID_ARGUMENT),
        {"none yet", "got 0"});
    engine.add_param("w", {1000});
    if (comm.rank() == 0) {
      for (const auto& call : std::vector<std::function<void()>>{
               [&] { engine.store().local_range(ParamId(0)); },
               [&] { engine.store().read_local(ParamId(0), "master"); },
               [&] { engine.store().write_local(ParamId(0), "master", data); }}) {
        expect_names(message_of(call, DS_ERROR_STATE), {"ds_engine_start"});
      }
    }
    engine.start();
    EXPECT_EQ(engine.store().read_tensor(ParamId(0), "master"), data);
    auto [first, count] = engine.store().local_range(ParamId(0));
    EXPECT_EQ(engine.store().read_local(ParamId(0), "master"),
              std::vector<float>(static_cast<size_t>(count), 1.0f));
  });
}

// The host's memory is compared with what a step needs at once: states and parameters, but not the
// buffers of leases and gradients, which have pages only while the host application holds a bucket.
TEST(Refuse, UnusedLeaseMemoryIsNotCounted) {
  constexpr int64_t kHuge = int64_t{1} << 38;
  for (int stage : {0, 3}) {
    auto comm = create_communicator("self", {});
    Config c = make_config(stage, 1, 1);
    c.optimizer.type = "SGD";
    DelegateEngine engine(c, *comm, {});
    engine.add_param("w", {kHuge});
    std::string message = message_of([&] { engine.start(); }, DS_ERROR_OUT_OF_MEMORY);
    size_t at = message.find("needs ");
    ASSERT_NE(at, std::string::npos) << message;
    const int64_t needed = std::stoll(message.substr(at + 6)) << 30;
    expect_names(message.substr(at), {" GiB of host memory (1 rank), this machine has "});
    // The parameter, its momentum, the sum of gradients and a buffer for initial values; norms need
    // a little more.
    EXPECT_GE(needed, 4 * 4 * kHuge) << message;
    EXPECT_LT(needed, 4 * 4 * kHuge + kHuge / 8) << message;
  }
}

TEST(Refuse, ATooSmallBudgetOfADelegateIsRefusedWithATable) {
  auto comm = create_communicator("self", {});
  Config c = make_config(0, 1, 1);
  c.memory_budget.device = 1000;
  DelegateEngine engine(c, *comm, {});
  engine.add_param("w", {256, 256});
  std::string message = message_of([&] { engine.start(); }, DS_ERROR_OUT_OF_MEMORY);
  expect_names(message, {"memory_budget", "optimizer states", "1000"});
  EXPECT_EQ(engine.runtime().mapped(Tier::device), 0);
}

// Runs one step of a host and returns the bytes of device memory after it.
int64_t delegate_step(DelegateEngine& engine, ParamId p, const std::vector<float>& grad) {
  engine.gather({&p, 1});
  engine.release({&p, 1});
  engine.grad_ready(ParamId(p), {grad.data(), DS_DTYPE_F32, static_cast<int64_t>(grad.size())});
  engine.end_micro_step();
  engine.step();
  return engine.runtime().mapped(Tier::device);
}

TEST(Refuse, DelegateStaysWithinItsBudgetCallByCall) {
  std::vector<float> grad(256 * 256, 0.01f);
  auto comm = create_communicator("self", {});
  auto run = [&](int64_t budget, bool& recorded) {
    Config c = make_config(3, 1, 1);
    c.zero.param_persistence_threshold = 0;
    c.memory_budget.device = budget;
    DelegateEngine engine(c, *comm, {});
    ParamId p = engine.add_param("w", {256, 256});
    engine.start();
    int64_t most = 0;
    for (int s = 0; s < 3; ++s) most = std::max(most, delegate_step(engine, p, grad));
    recorded = engine.recorded();
    return std::make_pair(most, engine.store().read_tensor(ParamId(p), "master"));
  };
  bool recorded = false;
  auto [free_bytes, free_state] = run(-1, recorded);
  EXPECT_TRUE(recorded);
  auto [bytes, state] = run(free_bytes - 1, recorded);
  EXPECT_FALSE(recorded);
  EXPECT_LT(bytes, free_bytes);
  EXPECT_EQ(state, free_state);
}

TEST(Refuse, AFailedSaveChangesNothing) {
  auto comm = create_communicator("self", {});
  Inputs in;
  Engine engine(on_files(0), make_mlp(2, kWidth, kRows), *comm, {});
  engine.train_batch(in.views());
  expect_names(message_of([&] { engine.checkpoints().save("/proc/no_such"); }, DS_ERROR_IO),
               {"/proc/no_such"});
  engine.train_batch(in.views());
  TempFolder folder;
  engine.checkpoints().save(folder.path());
  EXPECT_EQ(engine.control().steps(), 2);
}

TEST(Refuse, RanksWithDifferentConfigurationsAreRefusedWithTheKey) {
  std::string message = message_of(
      [&] {
        run_ranks(2, [&](Communicator& comm) {
          Config c = make_config(2, 1, 2);
          c.scheduler = make_schedule("WarmupLR", {{"warmup_min_lr", comm.rank() == 0 ? 0 : 1e-5}});
          Engine engine(c, make_mlp(2, kWidth, kRows), comm, {});
        });
      },
      DS_ERROR_CONFIG);
  expect_names(message, {"warmup_min_lr", "1e-05", "rank 1"});
}

TEST(Refuse, ARankWithoutItsFilesFailsAllRanks) {
  for (int stage : {0, 3}) {
    std::vector<std::string> messages(2);
    EXPECT_THROW(run_ranks(2,
                           [&](Communicator& comm) {
                             Config c = on_files(stage, 1, 2);
                             if (comm.rank() == 1) c.zero.nvme_path = "/proc/no_such";
                             try {
                               Engine engine(c, make_mlp(2, kWidth, kRows), comm, {});
                             } catch (const Error& e) {
                               messages[static_cast<size_t>(comm.rank())] = e.what();
                               throw;
                             }
                           }),
                 Error);
    for (const std::string& m : messages) expect_names(m, {"rank 1", "/proc/no_such"});
  }
}

TEST(Refuse, AFailedCreationReleasesItsMemory) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a sanitizer keeps freed memory for a while";
#endif
  auto comm = create_communicator("self", {});
  Config c = on_files(0);
  c.zero.nvme_path = "/proc/no_such";
  Graph graph = make_mlp(2, 512, 64);
  auto fail = [&] { EXPECT_THROW(Engine(c, graph, *comm, {}), Error); };
  fail();
  int64_t before = mapped_now();
  for (int i = 0; i < 10; ++i) fail();
  EXPECT_LT(mapped_now() - before, 5 * 512 * 512 * 4) << "ten engines of more than 2 MB each";
}

TEST(Refuse, GradientsOfAnUnfinishedStepAreNotReadable) {
  for (Tier tier : {Tier::device, Tier::nvme}) {
    auto comm = create_communicator("self", {});
    Config c = on_files(3, 2);
    c.zero.optimizer_tier = tier;
    Engine engine(c, make_mlp(2, kWidth, kRows), *comm, {});
    Inputs in;
    engine.forward(in.views());
    engine.backward();
    expect_names(
        message_of([&] { engine.store().read_tensor(ParamId(0), "grad"); }, DS_ERROR_STATE),
        {"h.0.weight", "backward"});
    engine.forward(in.views());
    engine.backward();
    std::vector<float> before = engine.store().read_tensor(ParamId(0), "grad");
    engine.step();
    EXPECT_EQ(engine.store().read_tensor(ParamId(0), "grad"), before);
    EXPECT_NE(before, std::vector<float>(before.size(), 0.0f));
  }
}

TEST(Refuse, TheConfiguredTimeoutAppliesToTheGroup) {
  std::promise<void> ended;
  std::string message;
  run_ranks(2, [&](Communicator& comm) {
    Config c = make_config(0, 1, 2);
    c.comm_timeout_ms = 50;
    Engine engine(c, make_mlp(2, kWidth, kRows), comm, {});
    // This rank waits until the other has given up.
    if (comm.rank() == 1) return ended.get_future().wait();
    message = message_of([&] { engine.train_batch(Inputs().views()); });
    ended.set_value();
  });
  expect_names(message, {"rank 1", "no progress for 50 ms"});
}

}  // namespace
}  // namespace ds::test::refuse_test
