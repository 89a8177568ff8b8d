#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "checkpoint/checkpoint.h"
#include "checkpoint/folder.h"
#include "checkpoint/payload.h"
#include "checkpoint/reader.h"
#include "core/base/error.h"
#include "data/dataset.h"
#include "generation/generate_text.h"
#include "io/file.h"
#include "monitor/metrics.h"
#include "run/run_train.h"
#include "run/setup.h"
#include "run/train.h"
#include "support/failing_reads.h"
#include "support/flip_byte.h"
#include "support/train_ranks.h"

namespace ds {
namespace {

using test::RunTrain;
using test::Warnings;

TEST_F(RunTrain, ResumedRunIsBitEqualToTheUnbrokenOne) {
  RunReport whole = train_on(2, config("whole", 6), quiet());
  TrainOptions interrupted = quiet();
  interrupted.progress = [](const RunProgress& p) { return p.step < 3; };
  RunReport part = train_on(2, config("part", 6), interrupted);
  EXPECT_EQ(part.end, RunEnd::callback);
  EXPECT_EQ(part.step, 3);
  // Rows after the checkpoint, as a killed run leaves them, are written again.
  MetricsCsv(part.folder + "/metrics.csv", 3).write(StepRecord{4, 99, 99, 99, 99, 99, {}});
  RunReport rest = train_on(2, {}, quiet(part.folder));
  EXPECT_EQ(rest.step, 6);
  EXPECT_EQ(payload_hash(rest.checkpoint), payload_hash(whole.checkpoint));
  std::vector<StepRecord> a = read_metrics(whole.folder + "/metrics.csv").steps;
  std::vector<StepRecord> b = read_metrics(rest.folder + "/metrics.csv").steps;
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].step, b[i].step);
    EXPECT_EQ(a[i].loss, b[i].loss) << "step " << a[i].step;
    EXPECT_EQ(a[i].grad_norm, b[i].grad_norm);
    EXPECT_EQ(a[i].lr, b[i].lr);
  }
  EXPECT_EQ(whole.heldout_loss, rest.heldout_loss);
  ASSERT_EQ(rest.samples.size(), 1u);
  EXPECT_EQ(whole.samples.back().text, rest.samples.back().text);
}

// A launcher makes the same call for a new run, for a run that continues, and for a run that has
// finished. Another job's run must be refused.
TEST_F(RunTrain, RunResumeStartsOrContinuesTheRunOfItsName) {
  Json whole = config("whole", 6), again = config("again", 4);
  std::string hash = payload_hash(train_on(2, whole, quiet()).checkpoint);
  merge_patch(again, Json::parse(R"({"run": {"resume": "job 1"}})"));
  EXPECT_EQ(train_on(2, again, quiet()).step, 4);
  merge_patch(again, Json::parse(R"({"run": {"steps": 6}})"));
  RunReport resumed = train_on(2, again, quiet());
  EXPECT_EQ(resumed.step, 6);
  EXPECT_EQ(payload_hash(resumed.checkpoint), hash);
  EXPECT_EQ(train_on(2, again, quiet()).step, 6);
  for (const char* name : {"whole", "again"}) {
    Json other = config(name, 6);
    merge_patch(other, Json::parse(R"({"run": {"resume": "job 2"}})"));
    EXPECT_NE(error_of(other, DS_ERROR_STATE).find("holds a run already"), std::string::npos);
  }
  // The folder of a model has a config.json, too, but is no run.
  const std::string model = folder_.path() + "/model";
  std::filesystem::create_directory(model);
  for (const char* file : {"config.json", "model.safetensors"})
    write_file_atomic(model + "/" + file, "{}");
  for (const char* name : {"job 1", "job 2"}) {
    Json in_model = config("model", 6);
    Json run;
    run.set("resume", name);
    merge_patch(in_model, Json(Json::Object{{"run", run}}));
    EXPECT_NE(error_of(in_model, DS_ERROR_STATE).find("it is the folder of a Hugging Face model"),
              std::string::npos);
  }
  merge_patch(again, Json::parse(R"({"run": {"dir": null}})"));
  EXPECT_EQ(error_of(again, DS_ERROR_CONFIG), "run.resume needs run.dir, which is not given");
}

// In run "b", the process was killed after it had begun to learn the vocabulary and before its
// first step.
TEST_F(RunTrain, AKilledRunLearnsItsVocabularyAgain) {
  Json c = config("a", 2), d = config("b", 2),
       patch = Json::parse(R"({"model": {"vocab": 280}, "data": {"tokenizer": "learn"}})");
  merge_patch(c, patch);
  merge_patch(d, patch);
  RunReport whole = train_on(1, c, quiet());
  make_folders(folder_ / "b/data/tokenizer");
  write_file_atomic(folder_ / "b/data/tokenizer/tokenizer.json", "{\"half\": ");
  write_file_atomic(folder_ / "b/data/train.tokens.tmp", "x");
  RunReport again = train_on(1, d, quiet());
  EXPECT_EQ(read_file(again.folder + "/data/tokenizer/tokenizer.json"),
            read_file(whole.folder + "/data/tokenizer/tokenizer.json"));
  EXPECT_EQ(payload_hash(again.checkpoint), payload_hash(whole.checkpoint));
}

TEST_F(RunTrain, ARefusedResumeChangesNothing) {
  RunReport first = train_on(1, config("a", 2), quiet());
  std::string before = read_file(first.folder + "/config.json");
  Json wider = Json::parse(R"({"model": {"hidden": 64}, "run": {"steps": 4}})");
  EXPECT_NE(error_of(wider, DS_ERROR_CONFIG, quiet(first.folder)).find("shape"), std::string::npos);
  Json other = Json::parse(R"({"data": {"max_bytes": 1000}, "run": {"steps": 4}})");
  EXPECT_NE(error_of(other, DS_ERROR_CONFIG, quiet(first.folder)).find("data:"), std::string::npos);
  EXPECT_EQ(read_file(first.folder + "/config.json"), before);
  EXPECT_EQ(train_on(1, Json::parse(R"({"run": {"steps": 3}})"), quiet(first.folder)).step, 3);
}

TEST_F(RunTrain, ARunInUseIsRefusedByFolderAndProcess) {
  Json own = config("a", 2);
  std::string messages[2];
  TrainOptions options = quiet();
  options.progress = [&](const RunProgress& now) {
    messages[now.step - 1] = now.step == 1 ? error_of({}, DS_ERROR_STATE, quiet(folder_ / "a"))
                                           : error_of(own, DS_ERROR_STATE);
    return true;
  };
  train_on(1, own, options);
  for (const std::string& line : messages) {
    EXPECT_EQ(line, "run folder '" + (folder_ / "a") + "' is in use by process " +
                        std::to_string(getpid()));
  }
  EXPECT_FALSE(exists(folder_ / "a/lock"));
}

TEST_F(RunTrain, ARunThatFailsBeforeItsFirstStepFreesItsFolder) {
  Json small = config("a", 2);
  merge_patch(small, Json::parse(R"({"model": {"vocab": 100}})"));
  std::string message = error_of(small, DS_ERROR_CONFIG);
  EXPECT_NE(message.find("model.vocab: 100 is too small for the text, which has token 1"),
            std::string::npos)
      << message;
  EXPECT_FALSE(exists(folder_ / "a"));
  Json few = config("a", 2);
  merge_patch(few, Json::parse(R"({"train_micro_batch_size_per_gpu": 20000})"));
  make_folders(folder_ / "a");
  write_file_atomic(folder_ / "a/notes", "mine");
  EXPECT_NE(error_of(few, DS_ERROR_CONFIG).find("samples"), std::string::npos);
  EXPECT_EQ(list_folder(folder_ / "a"), std::vector<std::string>{"notes"});
  EXPECT_EQ(train_on(1, config("a", 1), quiet()).step, 1);
}

TEST_F(RunTrain, ARunKilledBeforeItsFirstCheckpointStartsAgain) {
  RunReport first = train_on(1, config("a", 2), quiet());
  std::string hash = payload_hash(first.checkpoint);
  std::filesystem::remove_all(first.folder + "/checkpoints");
  EXPECT_EQ(payload_hash(train_on(1, {}, quiet(first.folder)).checkpoint), hash);
}

TEST_F(RunTrain, ANamedCheckpointIsResumedUnlessItIsDamaged) {
  RunReport whole = train_on(1, config("a", 6), quiet());
  std::string folder = whole.folder + "/checkpoints/", hash = payload_hash(whole.checkpoint);
  std::string second = folder + list_folder(folder)[0];
  ASSERT_EQ(read_checkpoint_info(second).step, 2);
  std::string file = whole.checkpoint + "/master.safetensors", bytes = read_file(file);
  bytes[bytes.size() - 3] ^= 1;
  write_file_atomic(file, bytes);
  EXPECT_NE(error_of({}, DS_ERROR_CORRUPT, quiet(whole.checkpoint)).find("master.safetensors"),
            std::string::npos);
  RunReport again = train_on(1, {}, quiet(second));
  EXPECT_EQ(again.folder, whole.folder);
  EXPECT_NE(again.checkpoint, whole.checkpoint);
  EXPECT_EQ(payload_hash(again.checkpoint), hash);
}

// The damaged file has its old size, so only its hash reveals the damage. All ranks resume from the
// previous checkpoint.
TEST_F(RunTrain, AResumeFallsBackFromADamagedCheckpoint) {
  RunReport whole = train_on(2, config("a", 6), quiet());
  std::string hash = payload_hash(whole.checkpoint);
  std::string file = whole.checkpoint + "/exp_avg.safetensors", bytes = read_file(file);
  bytes[bytes.size() - 3] ^= 1;
  write_file_atomic(file, bytes);
  Warnings warnings;
  RunReport again = train_on(2, {}, quiet(whole.folder));
  EXPECT_NE(again.checkpoint, whole.checkpoint);
  EXPECT_EQ(again.step, 6);
  EXPECT_EQ(payload_hash(again.checkpoint), hash);
  ASSERT_EQ(warnings.lines().size(), 1u);
  EXPECT_NE(warnings.lines()[0].find("exp_avg.safetensors"), std::string::npos);
  EXPECT_NE(warnings.lines()[0].find("is skipped, and the previous one is used"),
            std::string::npos);
}

std::vector<int64_t> steps(const std::string& folder) {
  std::vector<int64_t> found;
  for (const std::string& name : list_folder(folder + "/checkpoints"))
    found.push_back(read_checkpoint_info(folder + "/checkpoints/" + name).step);
  return found;
}

// If the newest checkpoint cannot be read, resuming and generating text use the previous one.
TEST_F(RunTrain, AnUnreadableCheckpointIsSkipped) {
  RunReport whole = train_on(1, config("a", 4), quiet());
  std::string hash = payload_hash(whole.checkpoint), folder = whole.folder + "/checkpoints/";
  std::string older = folder + list_folder(folder)[0];
  auto comm = create_communicator("self", {});
  GenerationRequest request{"the shard", {}, 40, {1.0, 0, 3}};
  std::string text = generate_text(*comm, older, request);
  EXPECT_NE(text, generate_text(*comm, whole.folder, request));
  auto expect_skipped = [&](Warnings& warnings) {
    ASSERT_EQ(warnings.lines().size(), 1u);
    for (const char* part : {whole.checkpoint.c_str(), "Input/output error", "is skipped"})
      EXPECT_NE(warnings.lines()[0].find(part), std::string::npos) << warnings.lines()[0];
  };
  for (const char* name : {"/master.safetensors", "/manifest.json"}) {
    test::FailingReads bad(whole.checkpoint + name);
    Warnings warnings;
    EXPECT_EQ(generate_text(*comm, whole.folder, request), text);
    if (std::string(name) == "/master.safetensors") expect_skipped(warnings);
  }
  // The file has the same size but different content, which only the engine's load notices.
  std::string file = whole.checkpoint + "/master.safetensors";
  test::flip_byte(file, File(file, File::Mode::read).size() - 3);
  EXPECT_EQ(generate_text(*comm, whole.folder, request), text);
  EXPECT_EQ(generate_text(*comm, whole.folder + "/checkpoints", request), text);
  test::flip_byte(file, File(file, File::Mode::read).size() - 3);
  test::FailingReads bad(whole.checkpoint + "/exp_avg.safetensors");
  Warnings warnings;
  EXPECT_EQ(payload_hash(train_on(1, {}, quiet(whole.folder)).checkpoint), hash);
  expect_skipped(warnings);
}

// The newest two checkpoints are kept, and a damaged checkpoint counts as one of them. The
// checkpoint from which the run continued is kept until two other checkpoints exist.
TEST_F(RunTrain, TheCheckpointThatARunFellBackToIsNotRemoved) {
  Json two = config("a", 4);
  merge_patch(two, Json::parse(R"({"run": {"keep": 2}})"));
  RunReport whole = train_on(1, two, quiet());
  ASSERT_EQ(steps(whole.folder), (std::vector<int64_t>{2, 4}));
  std::string file = whole.checkpoint + "/master.safetensors";
  test::flip_byte(file, File(file, File::Mode::read).size() - 3);
  RunReport again = train_on(1, Json::parse(R"({"run": {"steps": 3}})"), quiet(whole.folder));
  EXPECT_EQ(again.step, 3);
  EXPECT_EQ(steps(whole.folder), (std::vector<int64_t>{2, 3, 4}));
  train_on(1, Json::parse(R"({"run": {"steps": 6}})"), quiet(whole.folder));
  EXPECT_EQ(steps(whole.folder), (std::vector<int64_t>{4, 6}));
}

// There are more checkpoints than run.keep allows, as after a kill or a run of another version. A
// resume that fails before its first save must remove none of them.
TEST_F(RunTrain, NoCheckpointIsRemovedBeforeThereIsANewerOne) {
  Json all = config("a", 8);
  merge_patch(all, Json::parse(R"({"run": {"keep": 0}})"));
  RunReport whole = train_on(1, all, quiet());
  ASSERT_EQ(steps(whole.folder), (std::vector<int64_t>{2, 4, 6, 8}));
  Json longer = Json::parse(R"({"run": {"keep": 1, "steps": 9}})");
  TrainOptions broken = quiet(whole.folder);
  broken.progress = [&](const RunProgress&) -> bool {
    throw Error(DS_ERROR_USER, "before the save");
  };
  EXPECT_THROW(train_on(1, longer, broken), Error);
  EXPECT_EQ(steps(whole.folder), (std::vector<int64_t>{2, 4, 6, 8}));
  train_on(1, longer, quiet(whole.folder));
  EXPECT_EQ(steps(whole.folder), (std::vector<int64_t>{9}));
}

// The configuration of an older run has no run.keep: all its checkpoints stay until a configuration
// sets it.
TEST_F(RunTrain, ARunOlderThanRunKeepKeepsAllCheckpoints) {
  Json old = config("a", 6);
  merge_patch(old, Json::parse(R"({"run": {"save_every": 1}})"));
  merge_patch(old, Json::parse(R"({"run": {"keep": 0}})"));
  RunReport whole = train_on(1, old, quiet());
  std::string path = whole.folder + "/config.json";
  Json document = Json::parse(read_file(path));
  merge_patch(
      document,
      Json::parse(R"({"config": {"run": {"keep": null}}, "document": {"run": {"keep": null}}})"));
  write_file_atomic(path, document.dump());
  for (int goal : {7, 8}) {
    Json patch = Json::parse(R"({"run": {}})");
    merge_patch(patch, Json::parse(fmt::format(R"({{"run": {{"steps": {}}}}})", goal)));
    train_on(1, patch, quiet(whole.folder));
    EXPECT_EQ(steps(whole.folder).size(), static_cast<size_t>(goal));
  }
  train_on(1, Json::parse(R"({"run": {"keep": 2, "steps": 9}})"), quiet(whole.folder));
  EXPECT_EQ(steps(whole.folder), (std::vector<int64_t>{8, 9}));
}

TEST_F(RunTrain, TheNewestCheckpointsAreKept) {
  EXPECT_EQ(steps(train_on(1, config("three", 8), quiet()).folder),
            (std::vector<int64_t>{4, 6, 8}));
  Json all = config("all", 8);
  merge_patch(all, Json::parse(R"({"run": {"keep": 0}})"));
  RunReport report = train_on(1, all, quiet());
  EXPECT_EQ(steps(report.folder), (std::vector<int64_t>{2, 4, 6, 8}));
  // A run that continues from a named checkpoint keeps this checkpoint in addition to the newest.
  std::string second =
      report.folder + "/checkpoints/" + list_folder(report.folder + "/checkpoints")[0];
  train_on(1, Json::parse(R"({"run": {"keep": 1, "steps": 6}})"), quiet(second));
  EXPECT_EQ(steps(report.folder), (std::vector<int64_t>{2, 6}));
}

TEST_F(RunTrain, AResumeRemovesLeftoversOfAKilledProcess) {
  RunReport first = train_on(1, config("a", 2), quiet());
  std::vector<std::string> left = {"report.html.0123456789abcdef.tmp", "config.json.tmp",
                                   "data/train.tokens.tmp",
                                   "checkpoints/step-00000004-9/master.safetensors"};
  make_folders(first.folder + "/checkpoints/step-00000004-9");
  // This is the state after a process was killed between a commit and the removal of older
  // checkpoints.
  for (int i = 2; i < 5; ++i) {
    std::filesystem::copy(first.checkpoint,
                          first.folder + "/checkpoints/step-00000002-" + std::to_string(i),
                          std::filesystem::copy_options::recursive);
  }
  for (const std::string& name : left) write_file_atomic(first.folder + "/" + name, "x");
  write_file_atomic(first.folder + "/notes.tmp", "mine");
  // The resumed run has no steps left.
  train_on(1, {}, quiet(first.folder));
  for (const std::string& name : left) EXPECT_FALSE(exists(first.folder + "/" + name)) << name;
  EXPECT_TRUE(exists(first.folder + "/notes.tmp"));
  // Complete checkpoints are removed only once there is a newer one.
  EXPECT_EQ(list_folder(first.folder + "/checkpoints").size(), 4u);
}

TEST_F(RunTrain, AResumeWithAnotherTextIsRefusedWithBothHashes) {
  RunReport first = train_on(1, config("a", 1), quiet());
  std::string mine = TokenFile(first.folder + "/data/train.tokens").corpus_hash();
  prepare_dataset(read_corpus({.paths = {text_ + "/b.txt"}}), *open_tokenizer("bytes"),
                  first.folder + "/data");
  std::string other = TokenFile(first.folder + "/data/train.tokens").corpus_hash();
  std::string message =
      error_of(Json::parse(R"({"run": {"steps": 2}})"), DS_ERROR_CORRUPT, quiet(first.folder));
  EXPECT_NE(message.find("says " + mine), std::string::npos) << message;
  EXPECT_NE(message.find("has hash " + other), std::string::npos) << message;
}

TEST_F(RunTrain, AFinishedRunTrainsNoFurtherSteps) {
  RunReport first = train_on(1, config("a", 2), quiet());
  std::string before = read_file(first.folder + "/config.json");
  RunReport again = train_on(1, Json::parse(R"({"run": {"steps": 1}})"), quiet(first.folder));
  EXPECT_EQ(again.step, 2);
  EXPECT_EQ(again.checkpoint, first.checkpoint);
  EXPECT_EQ(read_file(first.folder + "/config.json"), before);
  write_file_atomic(first.folder + "/config.json", "{}");
  EXPECT_NE(error_of({}, DS_ERROR_CORRUPT, quiet(first.folder)).find(first.folder + "/config.json"),
            std::string::npos);
}

TEST_F(RunTrain, AUsedFolderIsRefused) {
  train_on(1, config("a", 1), quiet());
  EXPECT_NE(error_of(config("a", 1), DS_ERROR_STATE).find("run.dir"), std::string::npos);
}

}  // namespace
}  // namespace ds
