#include "checkpoint/checkpoint.h"
#include "checkpoint/fake_state.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/payload.h"
#include "checkpoint/writer.h"
#include "support/errors.h"

namespace ds::test {
namespace {

std::vector<std::string> names(const std::string& folder) { return list_folder(folder); }
using Names = std::vector<std::string>;

TEST(CheckpointCommit, KeepRemovesOlderCheckpoints) {
  TempFolder folder;
  for (int64_t step : {2, 4, 6, 8}) save_fake(folder.path(), step, 2, 2);
  EXPECT_EQ(names(folder.path()), (Names{"step-00000006-3", "step-00000008-4"}));
}

TEST(CheckpointCommit, KeepZeroRemovesNothing) {
  TempFolder folder;
  for (int64_t step : {2, 4, 6}) save_fake(folder.path(), step);
  EXPECT_EQ(names(folder.path()).size(), 3u);
}

// A damaged tagged checkpoint must not cause the whole checkpoint before it to be removed.
TEST(CheckpointCommit, KeepSparesTheNewestWholeCheckpoint) {
  TempFolder folder;
  for (int64_t step : {2, 4}) {
    std::string made = save_fake(folder.path(), step);
    std::filesystem::rename(made, made + ".best");
  }
  std::filesystem::resize_file(folder / "step-00000004-2.best/master.safetensors", 10);
  save_fake(folder.path(), 6, 1, 1);
  EXPECT_EQ(names(folder.path()), (Names{"step-00000002-1.best", "step-00000006-3"}));
  EXPECT_EQ(find_checkpoint(folder.path(), "best"), folder / "step-00000002-1.best");
}

TEST(CheckpointCommit, KeepSparesTheNamedCheckpoint) {
  TempFolder folder;
  std::string first = save_fake(folder.path(), 2);
  for (int64_t step : {4, 6, 8}) save_fake(folder.path(), step, 2, 2, first);
  EXPECT_EQ(names(folder.path()), (Names{"step-00000002-1", "step-00000006-3", "step-00000008-4"}));
}

// Only names that a save can create are checkpoints; a number like the first one would overflow
// when the next save increments it.
TEST(CheckpointCommit, NamesAreStrict) {
  TempFolder folder;
  Names others = {"step-00000002-9223372036854775807",
                  "step-00000002-99999999999999999999",
                  "step-2-5",
                  "step-00000002-05",
                  "step-00000002--5",
                  "step-00000002-0",
                  "step--0000002-5",
                  "step-00000002-5 ",
                  "step-00000002-+5",
                  "step-00000002-5.",
                  "step-00000002-5.a b",
                  "step-00000002-5.123456789012345678901234567890123"};
  for (const std::string& name : others) make_folders(folder / name);
  EXPECT_EQ(save_fake(folder.path(), 2, 1, 1), folder / "step-00000002-1");
  EXPECT_EQ(latest_checkpoint(folder.path()), folder / "step-00000002-1");
  for (const std::string& name : others) EXPECT_TRUE(exists(folder / name)) << name;
  EXPECT_EQ(save_fake(folder.path(), 123456789, 1, 1), folder / "step-123456789-2");
  EXPECT_EQ(latest_checkpoint(folder.path()), folder / "step-123456789-2");
}

TEST(CheckpointCommit, LeftoversAreRemovedWithoutASave) {
  TempFolder folder;
  std::string whole = save_fake(folder.path(), 2), cut = save_fake(folder.path(), 4);
  std::filesystem::remove(cut + "/manifest.json");
  remove_leftovers(folder.path());
  EXPECT_EQ(names(folder.path()), (Names{"step-00000002-1"}));
  remove_leftovers(folder / "nowhere");
}

TEST(CheckpointCommit, SavingAStepAgainKeepsTheFirstUntilTheCommit) {
  TempFolder folder;
  std::string first = save_fake(folder.path(), 4), hash = payload_hash(first);
  std::string second = save_fake(folder.path(), 4);
  EXPECT_NE(first, second);
  EXPECT_EQ(payload_hash(first), hash);
  EXPECT_EQ(latest_checkpoint(folder.path()), second);
  // Leaves the folder as if the save had been killed before its commit.
  std::filesystem::remove(second + "/manifest.json");
  EXPECT_EQ(latest_checkpoint(folder.path()), first);
}

// A run that went back to step 4 continues from its own step 6, not from the abandoned step 8.
TEST(CheckpointCommit, NewestIsTheLastCommitted) {
  TempFolder folder;
  for (int64_t step : {4, 8}) save_fake(folder.path(), step);
  std::string again = save_fake(folder.path(), 6);
  EXPECT_EQ(latest_checkpoint(folder.path()), again);
}

TEST(CheckpointCommit, NextSaveRemovesUnfinishedFolders) {
  TempFolder folder;
  std::string whole = save_fake(folder.path(), 2), cut = save_fake(folder.path(), 4);
  std::filesystem::remove(cut + "/manifest.json");
  write_file_atomic(folder / "notes.txt", "kept");
  make_folders(folder / "step-by-step");
  std::string next = save_fake(folder.path(), 6);
  EXPECT_FALSE(exists(cut));
  EXPECT_TRUE(exists(whole) && exists(next) && exists(folder / "notes.txt") &&
              exists(folder / "step-by-step"));
}

TEST(CheckpointCommit, AFailingRankFailsAllRanks) {
  TempFolder folder;
  std::string old = save_fake(folder.path(), 2);
  run_ranks(3, [&](Communicator& comm) {
    FakeState state(comm, true);
    state.fill();
    if (comm.rank() == 1) state.on_read = [] { raise(DS_ERROR_IO, "no space left"); };
    try {
      save_checkpoint(state, folder.path(), fake_info(4));
      ADD_FAILURE() << "rank " << comm.rank() << " did not throw";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), DS_ERROR_IO);
      EXPECT_STREQ(error.what(), "rank 1: no space left");
    }
    comm.barrier("still usable");
  });
  EXPECT_EQ(names(folder.path()), (Names{"step-00000002-1"}));
  EXPECT_EQ(latest_checkpoint(folder.path()), old);
}

// Skipped under a sanitizer, where a text of this size takes a minute.
TEST(CheckpointCommit, AManifestThatCannotBeReadAgainIsNotCommitted) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a text of this size takes a minute under a sanitizer";
#endif
  TempFolder folder;
  std::string old = save_fake(folder.path(), 2);
  run_ranks(1, [&](Communicator& comm) {
    FakeState state(comm, true);
    state.fill();
    CheckpointInfo info = fake_info(4);
    info.client.set("text", std::string(static_cast<size_t>(kMostManifest), 'x'));
    expect_names(
        message_of([&] { save_checkpoint(state, folder.path(), info); }, DS_ERROR_INVALID_ARGUMENT),
        {folder /
         "step-00000004-2/manifest.json: at most 268435456 bytes can be read, but this would have "
         "2684"});
  });
  EXPECT_EQ(names(folder.path()), (Names{"step-00000002-1"}));
  EXPECT_EQ(latest_checkpoint(folder.path()), old);
}

TEST(CheckpointCommit, AFolderThatCannotBeCreatedIsNamed) {
  TempFolder folder;
  write_file_atomic(folder / "file", "x");
  run_ranks(2, [&](Communicator& comm) {
    FakeState state(comm, true);
    EXPECT_THROW(save_checkpoint(state, folder / "file", fake_info(1)), Error);
  });
}

}  // namespace
}  // namespace ds::test
