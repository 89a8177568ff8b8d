// Tests saves that run on a thread while the caller continues.
#include <gtest/gtest.h>

#include <atomic>

#include "checkpoint/fake_state.h"
#include "checkpoint/folder.h"
#include "checkpoint/payload.h"
#include "checkpoint/writer.h"
#include "core/base/log.h"
#include "engine/engine.h"
#include "support/errors.h"
#include "support/models.h"

namespace ds::test::started_save_test {
namespace {

constexpr int64_t kPatience = 60'000;

// Returns a client state that a manifest cannot represent, so that the commit fails on rank 0's
// thread.
Json unreadable() {
  Json client;
  client.set("text", std::string(1, '\0'));
  return client;
}

// The save writes a copy, no matter what the caller does to its state afterwards.
TEST(StartedSave, SavesTheStateAtTheTimeOfTheCall) {
  for (int world : {1, 2, 3}) {
    TempFolder folder;
    std::string hash = payload_hash(save_fake(folder / "a", 4, world)), path;
    run_ranks(world, [&](Communicator& comm) {
      FakeState state(comm, true);
      state.fill();
      StartedSave save(state, folder / "b", fake_info(4), {}, kPatience);
      state.each([](int, ParamId, int64_t, float& value) { value = -1; });
      for (int i = 0; i < 50; ++i) comm.barrier("steps go on");
      std::string mine = save.wait();
      if (comm.rank() == 0) path = mine;
    });
    EXPECT_EQ(payload_hash(path), hash);
    EXPECT_EQ(list_folder(path),
              (std::vector<std::string>{"exp_avg.safetensors", "exp_avg_sq.safetensors",
                                        "manifest.json", "master.safetensors"}));
  }
}

TEST(StartedSave, SlicesAndReusedCopiesAreSavedWhole) {
  TempFolder folder;
  std::string hash = payload_hash(save_fake(folder / "a", 4, 2, 0, "", false)), path;
  run_ranks(2, [&](Communicator& comm) {
    FakeState state(comm, false);
    state.fill();
    std::string mine = StartedSave(state, folder / "b", fake_info(4), {}, kPatience).wait();
    if (comm.rank() == 0) path = mine;
  });
  EXPECT_EQ(payload_hash(path), hash);
}

TEST(StartedSave, KeepsTheGivenNumberOfCheckpoints) {
  TempFolder folder;
  for (int64_t step : {2, 4, 6}) {
    run_ranks(2, [&](Communicator& comm) {
      FakeState state(comm, true);
      state.fill();
      StartedSave(state, folder.path(), fake_info(step), {.newest = 2}, kPatience).wait();
    });
  }
  EXPECT_EQ(list_folder(folder.path()),
            (std::vector<std::string>{"step-00000004-2", "step-00000006-3"}));
}

// Every rank gets the error, and no file of the save remains.
TEST(StartedSave, AnErrorOfAThreadIsThrownByWait) {
  TempFolder folder;
  std::string first = save_fake(folder.path(), 2, 2);
  std::atomic<int> heard = 0;
  run_ranks(2, [&](Communicator& comm) {
    FakeState state(comm, true);
    state.fill();
    CheckpointInfo info = fake_info(4);
    info.client = unreadable();
    StartedSave save(state, folder.path(), info, {}, kPatience);
    expect_names(message_of([&] { save.wait(); }, DS_ERROR_CONFIG), {"json"});
    ++heard;
  });
  EXPECT_EQ(heard, 2);
  EXPECT_EQ(latest_checkpoint(folder.path()), first);
  EXPECT_EQ(list_folder(folder.path()).size(), 1u);
}

TEST(StartedSave, AnErrorOfTheCopyIsThrownAtOnce) {
  TempFolder folder;
  std::atomic<int> heard = 0;
  run_ranks(2, [&](Communicator& comm) {
    FakeState state(comm, true);
    if (comm.rank() == 1) state.on_read = [] { raise(DS_ERROR_IO, "a state that cannot be read"); };
    expect_names(message_of([&] { StartedSave(state, folder / "c", fake_info(4), {}, kPatience); },
                            DS_ERROR_IO),
                 {"cannot be read"});
    ++heard;
  });
  EXPECT_EQ(heard, 2);
  EXPECT_TRUE(is_absent(folder / "c"));
}

class StartedSaveEngine : public testing::Test {
 protected:
  void step() {
    std::vector<float> x(16, 0.5f), target(16, 1.0f);
    std::vector<InputView> inputs{{x.data(), DS_DTYPE_F32, 16}, {target.data(), DS_DTYPE_F32, 16}};
    engine_->train_batch(inputs);
  }
  int64_t newest_step() { return read_checkpoint_info(find_checkpoint(folder_.path())).step; }

  TempFolder folder_;
  std::unique_ptr<Communicator> comm_ = create_communicator("self", {});
  std::unique_ptr<Engine> engine_ =
      std::make_unique<Engine>(make_config(1, 1, 1), make_mlp(1, 8, 2), *comm_, EngineOptions{});
};

// Proves {checkpoint.save.async} and {checkpoint.wait}.
TEST_F(StartedSaveEngine, StepsContinueDuringASave) {
  step();
  std::string sync = engine_->checkpoints().save(folder_ / "sync");
  engine_->checkpoints().start_save(folder_.path());
  step();
  step();
  std::string path = engine_->checkpoints().wait();
  EXPECT_EQ(engine_->checkpoints().wait(), "");
  EXPECT_EQ(newest_step(), 1);
  EXPECT_EQ(payload_hash(path), payload_hash(sync));
  EXPECT_EQ(engine_->checkpoints().load(path).step, 1);
}

// Proves {checkpoint.wait.next}.
TEST_F(StartedSaveEngine, TheNextSaveWaitsAndReportsTheError) {
  step();
  engine_->checkpoints().start_save(folder_.path());
  step();
  engine_->checkpoints().start_save(folder_.path());
  EXPECT_EQ(newest_step() >= 1, true);
  step();
  EXPECT_EQ(engine_->checkpoints().load(folder_.path()).step, 2);
  for (bool load : {false, true}) {
    engine_->checkpoints().start_save(folder_.path(), unreadable());
    step();
    message_of(
        [&] {
          if (load)
            engine_->checkpoints().load(folder_.path());
          else
            engine_->checkpoints().save(folder_.path());
        },
        DS_ERROR_CONFIG);
    // The engine is still usable.
    step();
  }
  engine_->checkpoints().save(folder_.path());
  EXPECT_EQ(newest_step(), 6);
}

// Proves {checkpoint.wait.end}.
TEST_F(StartedSaveEngine, DestroyingAnEngineWaits) {
  step();
  engine_->checkpoints().start_save(folder_.path());
  engine_.reset();
  EXPECT_EQ(newest_step(), 1);
  engine_ =
      std::make_unique<Engine>(make_config(1, 1, 1), make_mlp(1, 8, 2), *comm_, EngineOptions{});
  std::string lines;
  set_log_sink([&](LogLevel, std::string_view line) { lines += line; });
  engine_->checkpoints().start_save(folder_.path(), unreadable());
  engine_.reset();
  flush_log();
  set_log_sink({});
  expect_names(lines, {"a checkpoint was not saved"});
}

}  // namespace
}  // namespace ds::test::started_save_test
