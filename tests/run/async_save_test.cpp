// Tests runs whose checkpoints are written by a thread while training continues (run.async_save).
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/folder.h"
#include "checkpoint/payload.h"
#include "core/base/log.h"
#include "engine/engine.h"
#include "io/file.h"
#include "monitor/metrics.h"
#include "run/setup.h"
#include "support/temp_folder.h"
#include "support/train_ranks.h"

namespace ds {
namespace {

class AsyncSave : public testing::Test {
 protected:
  void SetUp() override {
    text_ = folder_.path() + "/text";
    make_folders(text_);
    std::string line = "a shard of rows is gathered, used and freed again.\n", text;
    for (int i = 0; i < 120; ++i) text += line.substr(static_cast<size_t>(i) % 30) + line;
    write_file_atomic(text_ + "/a.txt", text);
  }

  Json config(const std::string& dir, int steps, const std::string& patch = "{}") const {
    Json c = Json::parse(R"({
      "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2, "reproducible": true,
      "optimizer": {"type": "AdamW", "params": {"lr": 0.005}}, "zero_optimization": {"stage": 2},
      "model": {"family": "gpt", "layers": 1, "hidden": 32, "heads": 2}, "data": {"heldout": 0},
      "run": {"sequence": 16, "save_every": 2, "keep": 0, "sample_tokens": 0, "seed": 5, "threads": 1,
              "async_save": true}
    })");
    merge_patch(c, Json::parse(patch));
    Json more = Json::parse("{\"run\": {}, \"data\": {}}");
    Json run, data;
    run.set("dir", folder_.path() + "/" + dir);
    run.set("steps", steps);
    data.set("paths", Json::Array{text_});
    more.set("run", run);
    more.set("data", data);
    merge_patch(c, more);
    return c;
  }

  static std::vector<std::string> hashes(const std::string& run) {
    std::vector<std::string> out;
    for (const std::string& name : list_folder(run + "/checkpoints"))
      out.push_back(name + " " + payload_hash(run + "/checkpoints/" + name));
    return out;
  }

  test::TempFolder folder_;
  std::string text_;
};

// Every checkpoint, including the last, equals that of a run that waits for its saves.
TEST_F(AsyncSave, SavesTheSameCheckpoints) {
  for (int ranks : {1, 2}) {
    const std::string n = std::to_string(ranks);
    RunReport started = test::train_quietly(ranks, config("started" + n, 7));
    RunReport waited =
        test::train_quietly(ranks, config("waited" + n, 7, R"({"run": {"async_save": false}})"));
    EXPECT_EQ(hashes(started.folder), hashes(waited.folder));
    // Checkpoints follow steps 2, 4, 6 and the last one.
    EXPECT_EQ(hashes(started.folder).size(), 4u);
    EXPECT_EQ(started.checkpoint, started.folder + "/checkpoints/step-00000007-4");
    EXPECT_EQ(started.saves, 4);
    EXPECT_GT(started.save_seconds, 0);
  }
}

// A stop waits for the save of the last step, and the stopped run saves its state.
TEST_F(AsyncSave, AStopWaitsForTheSaveAndResumesExactly) {
  RunReport unbroken = test::train_quietly(2, config("unbroken", 8));
  volatile int32_t stop = 0;
  TrainOptions options;
  options.quiet = 2;
  options.stop = &stop;
  options.progress = [&](const RunProgress& progress) {
    if (progress.step == 4) stop = 1;
    return true;
  };
  RunReport stopped = test::train_on(2, config("stopped", 8), options);
  EXPECT_EQ(stopped.end, RunEnd::stopped);
  EXPECT_EQ(stopped.checkpoint, stopped.folder + "/checkpoints/step-00000004-2");
  EXPECT_NO_THROW(payload_hash(stopped.checkpoint));
  RunReport resumed = test::train_quietly(2, Json(), stopped.folder);
  EXPECT_EQ(payload_hash(resumed.checkpoint), payload_hash(unbroken.checkpoint));
}

TEST_F(AsyncSave, MetricsAndReportShowTheCostOfASave) {
  RunReport report = test::train_quietly(2, config("run", 6));
  Metrics metrics = read_metrics(report.folder + "/metrics.csv");
  ASSERT_EQ(metrics.steps.size(), 6u);
  for (const StepRecord& r : metrics.steps)
    EXPECT_EQ(r.save_seconds > 0, r.step == 3 || r.step == 5) << r.step;
  const std::string html = read_file(report.folder + "/report.html");
  EXPECT_NE(html.find("a thread wrote all but the last"), std::string::npos);
}

// If a copy of the state does not fit the budget, saves do not run in the background.
TEST_F(AsyncSave, WithoutMemoryForTheCopyStepsWait) {
  set_log_sink({});
  RunReport roomy =
      test::train_quietly(1, config("roomy", 4, R"({"memory_budget": {"host": "1GiB"}})"));
  RunReport tight =
      test::train_quietly(1, config("tight", 4, R"({"memory_budget": {"host": "64KiB"}})"));
  EXPECT_EQ(payload_hash(tight.checkpoint), payload_hash(roomy.checkpoint));
  const std::string by_thread = "a thread wrote all but the last";
  EXPECT_NE(read_file(roomy.folder + "/report.html").find(by_thread), std::string::npos);
  EXPECT_EQ(read_file(tight.folder + "/report.html").find(by_thread), std::string::npos);
}

// If the file system refuses a save, its step logs a warning; only the last save must succeed.
TEST_F(AsyncSave, ARefusedSaveIsAWarning) {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  Json c = config("refused", 6);
  TrainOptions options;
  options.quiet = 2;
  const std::string checkpoints = folder_.path() + "/refused/checkpoints";
  options.progress = [&](const RunProgress& progress) {
    if (progress.step == 1) write_file_atomic(checkpoints, "no folder");
    if (progress.step == 5) std::filesystem::remove(checkpoints);
    return true;
  };
  RunReport report = test::train_on(1, c, options);
  flush_log();
  set_log_sink({});
  EXPECT_EQ(report.end, RunEnd::finished);
  EXPECT_EQ(list_folder(checkpoints), std::vector<std::string>{"step-00000006-1"});
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  EXPECT_NE(all.find("step 2 is not saved"), std::string::npos) << all;
  EXPECT_NE(all.find("step 4 is not saved"), std::string::npos) << all;
}

}  // namespace
}  // namespace ds
