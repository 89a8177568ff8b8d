// Simulates power cuts without a disk: records the file calls of a run, then builds folders that
// contain what may remain of its files after a cut at any moment. Each folder must contain,
// complete, the last checkpoint that the run had reported, and everything that a resume from it
// needs.
#include "support/replay.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "checkpoint/folder.h"
#include "checkpoint/payload.h"
#include "checkpoint/reader.h"
#include "core/base/error.h"
#include "data/dataset.h"
#include "io/file.h"
#include "run/folder.h"
#include "support/spawn.h"
#include "support/temp_folder.h"

namespace ds::test::replay_test {
namespace {

constexpr int kSteps = 8, kSaveEvery = 2;
const std::string kBinary = DS_BINARY_DIR;

struct Launch {
  bool finished = false;
  std::map<int64_t, std::string> losses;
  std::string errors;
};

// Runs run_driver once; records its file calls to `log` unless that is empty.
Launch run(const std::string& folder, const std::string& text, const std::string& log = "") {
  TempFolder output;
  std::vector<std::string> environment;
  if (!log.empty()) {
    environment = {"LD_PRELOAD=" + kBinary + "/lib/libds_record_shim.so", "DS_TEST_RECORD=" + log,
                   "DS_TEST_ROOT=" + folder};
  }
  pid_t pid = start_process({kBinary + "/bin/run_driver", folder, text, std::to_string(kSteps)},
                            environment, output / "out", output / "err");
  int status = 0;
  waitpid(pid, &status, 0);
  Launch launch;
  launch.finished = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  std::ifstream out(output / "out");
  std::string loss;
  for (int64_t step = 0; out >> step >> loss;) launch.losses[step] = loss;
  launch.errors = read_file(output / "err");
  return launch;
}

class Replay : public testing::Test {
 protected:
  void SetUp() override {
    std::string words;
    for (int i = 0; i < 200; ++i)
      words += fmt::format("line {} of a text: {}\n", i, i * 7919 % 1000);
    write_file_atomic(text_, words);
    make_folder(root_);
    whole_ = run(root_, text_, folder_ / "log");
    ASSERT_TRUE(whole_.finished) << whole_.errors;
    ASSERT_EQ(whole_.losses.size(), static_cast<size_t>(kSteps));
    events_ = read_events(folder_ / "log");
    for (const std::string& name : list_folder(root_ + "/run/checkpoints")) {
      std::string path = root_ + "/run/checkpoints/" + name;
      hashes_[read_checkpoint_info(path).step] = payload_hash(path);
    }
    ASSERT_EQ(hashes_.count(kSteps), 1u);
  }

  // Returns the last step whose checkpoint was certainly committed before events[end], because the
  // run had already reported a later step.
  int64_t committed(size_t end) const {
    int64_t reported = 0;
    for (size_t e = 0; e < end; ++e) {
      if (events_[e].kind == 'p') reported = std::stoll(events_[e].bytes);
    }
    return std::max<int64_t>(0, (reported - 1) / kSaveEvery * kSaveEvery);
  }

  // Builds a folder as a power cut may leave it and checks its checkpoints. If `resume` is set,
  // also resumes from it and compares losses and the final hash with those of the run without cuts.
  void try_one(size_t end, Loss loss, uint32_t seed, bool resume) {
    SCOPED_TRACE(fmt::format("cut before event {} of {}, loss {}, seed {}", end, events_.size(),
                             static_cast<int>(loss), seed));
    std::mt19937 random(seed);
    TempFolder left;
    replay(events_, end, root_, left.path(), loss, random);
    check_checkpoints(left / "run", committed(end));
    if (!resume) return;
    Launch launch = run(left.path(), text_);
    ASSERT_TRUE(launch.finished) << launch.errors;
    for (const auto& [step, value] : launch.losses)
      ASSERT_EQ(value, whole_.losses[step]) << "step " << step;
    ASSERT_EQ(payload_hash(latest_checkpoint(left / "run/checkpoints")), hashes_[kSteps]);
  }

  // Checks that every checkpoint with a manifest is complete, and that one of step `least` or later
  // exists, with everything that a resume from it needs.
  void check_checkpoints(const std::string& path, int64_t least) {
    int64_t newest = 0;
    if (exists(path + "/checkpoints")) {
      for (const std::string& name : list_folder(path + "/checkpoints")) {
        std::string checkpoint = path + "/checkpoints/" + name;
        if (!exists(checkpoint + "/manifest.json")) continue;
        int64_t step = read_checkpoint_info(checkpoint).step;
        ASSERT_EQ(payload_hash(checkpoint), hashes_[step]) << checkpoint;
        newest = std::max(newest, step);
      }
    }
    ASSERT_GE(newest, least);
    if (newest == 0) return;
    ++with_checkpoint_;
    RunConfigFile config = read_run_config(open_run_folder(path));
    Dataset text = open_dataset(path + "/data");
    ASSERT_EQ(text.train.hash(), config.text.at("train.tokens").string());
    ASSERT_EQ(text.heldout.hash(), config.text.at("heldout.tokens").string());
  }

  TempFolder folder_;
  std::string root_ = folder_ / "root", text_ = folder_ / "text.txt";
  Launch whole_;
  std::vector<FileEvent> events_;
  // The hash of the checkpoint of each step in the run without cuts.
  std::map<int64_t, std::string> hashes_;
  int with_checkpoint_ = 0;
};

constexpr Loss kLosses[] = {Loss::all, Loss::none, Loss::ordered, Loss::any};

TEST_F(Replay, ACutAtAnyMomentLeavesTheLastReportedCheckpoint) {
  uint32_t seed = 0;
  for (size_t end = 0; end <= events_.size(); ++end) {
    // Tries every kind of loss before each sync, rename and printed line, and one kind elsewhere.
    bool sharp = end < events_.size() &&
                 (events_[end].kind == 's' || events_[end].kind == 'r' || events_[end].kind == 'p');
    for (Loss loss : kLosses) {
      if (!sharp && static_cast<size_t>(loss) != end % 4) continue;
      ASSERT_NO_FATAL_FAILURE(try_one(end, loss, seed++, false));
      if (HasFailure()) return;
    }
  }
  fmt::print("{} events, {} cuts, {} of them after a commit\n", events_.size(), seed,
             with_checkpoint_);
  EXPECT_GT(seed, 200u);
  EXPECT_GT(with_checkpoint_, 100);
}

TEST_F(Replay, RunsCutAtRandomMomentsResumeWithTheSameBits) {
  std::mt19937 random(3);
  for (uint32_t i = 0; i < 12; ++i) {
    ASSERT_NO_FATAL_FAILURE(try_one(random() % (events_.size() + 1), kLosses[i % 4], i, true));
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace ds::test::replay_test
