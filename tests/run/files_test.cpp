// Tests runs whose files are changed, removed or replaced by links and pipes, before the run or
// during it.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <thread>

#include "core/base/error.h"
#include "io/file.h"
#include "run/train.h"
#include "support/flip_byte.h"
#include "support/temp_folder.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

std::string story() {
  std::string text;
  for (int i = 0; i < 300; ++i) text += fmt::format("line {} of a text: {}\n", i, i * 7919 % 1000);
  return text;
}

class RunFiles : public testing::Test {
 protected:
  void SetUp() override { write_file_atomic(folder_ / "text.txt", story()); }

  std::string dir() const { return folder_ / "run"; }
  Json config(int steps, const std::string& text = "text.txt") const {
    return Json::parse(fmt::format(R"({{
      "train_micro_batch_size_per_gpu": 2, "optimizer": {{"type": "AdamW", "params": {{"lr": 0.005}}}},
      "model": {{"family": "gpt", "layers": 1, "hidden": 16, "heads": 2}},
      "data": {{"heldout": 0.1, "paths": ["{}"]}},
      "run": {{"dir": "{}", "steps": {}, "sequence": 16, "save_every": 2, "sample_tokens": 0, "threads": 1}}
    }})",
                                   folder_ / text, dir(), steps));
  }

  // Trains on one rank, calling `at_three` after step 3. Returns the error, or "" if there is none.
  std::string train_to(int steps, const std::function<void()>& at_three = nullptr,
                       const std::string& resume = "") {
    TrainOptions options;
    options.quiet = 2;
    options.resume = resume;
    options.progress = [&](const RunProgress& now) {
      last_ = now.step;
      if (now.step == 3 && at_three) at_three();
      return true;
    };
    try {
      auto comm = create_communicator("self", {});
      train(config(steps), *comm, options);
      return "";
    } catch (const Error& error) {
      status_ = error.status();
      return error.what();
    }
  }
  std::string resume(int steps) { return train_to(steps, nullptr, dir()); }

  test::TempFolder folder_;
  int64_t last_ = 0;
  ds_status status_ = DS_OK;
};

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
}

TEST_F(RunFiles, TruncatedTextEndsTheRunWithBothSizes) {
  std::string path = dir() + "/data/train.tokens";
  int64_t size = 0;
  std::string error = train_to(12, [&] {
    File file(path, File::Mode::write);
    size = file.size();
    file.resize(100);
  });
  expect_parts(error, {path, fmt::format("had {} bytes", size), "has 100 now"});
  EXPECT_EQ(status_, DS_ERROR_CORRUPT);
  EXPECT_LE(last_, 4);
}

// A run that was killed before it had a configuration starts again in its folder, which may contain
// other files.
TEST_F(RunFiles, LeftoversOfAKilledStartAreRemoved) {
  make_folders(dir() + "/data/tokenizer");
  for (const char* name : {"train.tokens.12ab.tmp", "heldout.tokens.34cd.tmp", "mine.tmp",
                           "tokenizer/vocab.json.5.tmp"}) {
    write_file_atomic(dir() + "/data/" + name, "unfinished");
  }
  EXPECT_EQ(train_to(1), "");
  EXPECT_FALSE(name_exists(dir() + "/data/train.tokens.12ab.tmp"));
  EXPECT_FALSE(name_exists(dir() + "/data/heldout.tokens.34cd.tmp"));
  EXPECT_FALSE(name_exists(dir() + "/data/tokenizer/vocab.json.5.tmp"));
  EXPECT_TRUE(name_exists(dir() + "/data/mine.tmp"));
}

// --dir may name a folder of the user's. A run that fails at its start must not remove anything
// from it.
TEST_F(RunFiles, ARunThatCannotStartKeepsAUsersFiles) {
  make_folders(dir() + "/data/tokenizer");
  const char* names[] = {"metrics.csv", "events.out.tfevents.1.mine", "data/train.tokens",
                         "data/tokenizer/vocab.txt"};
  for (const char* name : names) write_file_atomic(dir() + "/" + name, "of another tool");
  TrainOptions options;
  options.quiet = 2;
  auto comm = create_communicator("self", {});
  EXPECT_THROW(train(config(1, "misspelt.txt"), *comm, options), Error);
  for (const char* name : names) EXPECT_TRUE(name_exists(dir() + "/" + name)) << name;
  EXPECT_FALSE(name_exists(dir() + "/config.json"));
}

TEST_F(RunFiles, TextThatChangesDuringTheRunIsNoticedBeforeItIsSaved) {
  std::string path = dir() + "/data/heldout.tokens";
  std::string error = train_to(12, [&] { test::flip_byte(path, 70); });
  expect_parts(error, {path, "had hash ", "has "});
  // The row of a step is written before the step is saved.
  EXPECT_EQ(last_, 4);
  EXPECT_EQ(list_folder(dir() + "/checkpoints"), std::vector<std::string>{"step-00000002-1"});
  // A file that was only touched, or replaced by a copy, has the same text.
  fs::remove_all(dir());
  path = dir() + "/data/train.tokens";
  EXPECT_EQ(train_to(6, [&] { write_file_atomic(path, read_file(path)); }), "");
}

TEST_F(RunFiles, ChangedTextIsRefusedOnResume) {
  ASSERT_EQ(train_to(4), "");
  for (const char* name : {"train.tokens", "heldout.tokens"}) {
    std::string path = dir() + "/data/" + name;
    test::flip_byte(path, 80);
    expect_parts(resume(6), {path, "has hash ", "config.json' says "});
    EXPECT_EQ(status_, DS_ERROR_CORRUPT);
    test::flip_byte(path, 80);
  }
  // The checkpoint has its own record of the text, so changing config.json along with the text is
  // noticed.
  std::string path = dir() + "/data/train.tokens", text = read_file(path);
  Json values = Json::parse(read_file(dir() + "/config.json"));
  values.set("text", Json());
  write_file_atomic(dir() + "/config.json", values.dump());
  test::flip_byte(path, 80);
  expect_parts(resume(6), {path, "checkpoint '" + dir() + "/checkpoints/step-00000004-2' says "});
  test::flip_byte(path, 80);
  EXPECT_EQ(resume(6), "");
}

TEST_F(RunFiles, RunFolderThatIsRemovedMovedOrReplacedEndsTheRun) {
  std::string aside = folder_ / "aside";
  const std::vector<std::function<void()>> deeds = {
      [&] { fs::remove_all(dir()); },
      [&] { fs::rename(dir(), aside); },
      [&] {
        fs::rename(dir(), aside);
        fs::copy(aside, dir(), fs::copy_options::recursive);
      },
  };
  for (const auto& deed : deeds) {
    expect_parts(train_to(12, deed), {dir(), "removed, moved or replaced"});
    EXPECT_EQ(status_, DS_ERROR_STATE);
    EXPECT_EQ(last_, 3);
    fs::remove_all(aside);
    fs::remove_all(dir());
  }
}

TEST_F(RunFiles, LinksAreReplacedAndNeverFollowed) {
  std::string victim = folder_ / "victim";
  write_file_atomic(victim, "mine");
  fs::create_directory(dir());
  fs::create_symlink(victim, dir() + "/config.json.tmp");
  fs::create_symlink(victim, dir() + "/trace.json");
  ASSERT_EQ(train_to(2), "");
  EXPECT_EQ(read_file(victim), "mine");
  fs::create_symlink(victim, dir() + "/lock");
  expect_parts(resume(4), {dir() + "/lock: is a symbolic link"});
  fs::remove(dir() + "/lock");
  fs::create_hard_link(victim, dir() + "/lock");
  expect_parts(resume(4), {dir() + "/lock: must have one name"});
  EXPECT_EQ(read_file(victim), "mine");
}

// The paths in the run folder that a resumed run reads or continues to write.
const std::vector<std::string> kPlaces = {"lock",
                                          "config.json",
                                          "metrics.csv",
                                          "data/train.tokens",
                                          "data/heldout.tokens",
                                          "checkpoints/step-00000002-1/manifest.json",
                                          "checkpoints/step-00000002-1/master.safetensors"};

TEST_F(RunFiles, PipesDevicesLinksAndFoldersAreRefusedAtOnce) {
  ASSERT_EQ(train_to(2), "");
  for (const std::string& place : kPlaces) {
    std::string path = dir() + "/" + place, aside = folder_ / "aside";
    bool there = exists(path);
    if (there) fs::rename(path, aside);
    const std::vector<std::function<void()>> deeds = {
        [&] { ASSERT_EQ(mkfifo(path.c_str(), 0600), 0); },
        [&] { fs::create_symlink("/dev/zero", path); },
        [&] { fs::create_symlink(there ? aside : folder_ / "text.txt", path); },
        [&] { fs::create_directory(path); },
    };
    for (const auto& deed : deeds) {
      deed();
      std::string error = resume(4);
      EXPECT_NE(error, "") << place;
      expect_parts(error, {path});
      fs::remove(path);
    }
    if (there) fs::rename(aside, path);
  }
  EXPECT_EQ(resume(4), "");
}

TEST_F(RunFiles, FilesOfAnotherUserAreRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  ASSERT_EQ(train_to(2), "");
  std::vector<std::string> places = kPlaces;
  places.insert(places.end(), {"", "data", "checkpoints", "checkpoints/step-00000002-1"});
  for (const std::string& place : places) {
    std::string path = dir() + "/" + place;
    if (!exists(path)) continue;
    ASSERT_EQ(chown(path.c_str(), 4242, 4242), 0);
    expect_parts(resume(4), {path, "belongs to user 4242"});
    ASSERT_EQ(chown(path.c_str(), 0, 0), 0);
  }
  EXPECT_EQ(resume(4), "");
}

TEST_F(RunFiles, PathsThatDifferBetweenRanksAreNamed) {
  write_file_atomic(folder_ / "other.txt", story() + "more\n");
  std::vector<std::string> errors(2);
  auto body = [&](int rank) {
    try {
      auto comm = create_communicator("threads://paths_differ", {rank, 2, 20000, 20000});
      TrainOptions options;
      options.quiet = 2;
      train(config(2, rank == 0 ? "text.txt" : "other.txt"), *comm, options);
    } catch (const Error& error) {
      errors[static_cast<size_t>(rank)] = error.what();
    }
  };
  std::thread other([&] { body(1); });
  body(0);
  other.join();
  for (const std::string& error : errors) {
    expect_parts(error, {"data.paths is [\"" + folder_ / "text.txt" + "\"] on rank 0, [\"" +
                         folder_ / "other.txt" + "\"] on rank 1"});
  }
  EXPECT_FALSE(exists(dir()));
}

}  // namespace
}  // namespace ds
