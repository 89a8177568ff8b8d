#include "run/train.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "checkpoint/checkpoint.h"
#include "checkpoint/folder.h"
#include "checkpoint/payload.h"
#include "checkpoint/reader.h"
#include "core/base/error.h"
#include "data/dataset.h"
#include "data/tokenizer.h"
#include "generation/generate_text.h"
#include "io/file.h"
#include "monitor/metrics.h"
#include "run/run_train.h"
#include "run/setup.h"
#include "support/errors.h"
#include "support/ranks.h"
#include "support/spawn.h"
#include "support/train_ranks.h"

namespace ds {
namespace {

using test::RunTrain;
using test::Warnings;

Json on_folder(Json c, const std::string& model) {
  Json patch =
      Json::parse(R"({"model": null, "data": {"tokenizer": "bytes"}, "run": {"sequence": 16}})");
  merge_patch(c, patch);
  Json section;
  section.set("folder", model);
  section.set("dropout", 0);
  c.set("model", std::move(section));
  return c;
}

std::string reference_model(const char* family) {
  return std::string(DS_SOURCE_DIR) + "/tests/data/models/" + family;
}

class RunTrainModel : public RunTrain, public testing::WithParamInterface<const char*> {};

TEST_P(RunTrainModel, TrainsAFolderAndSavesOne) {
  std::string model = reference_model(GetParam());
  RunReport report = train_on(2, on_folder(config("m", 6), model), quiet());
  EXPECT_EQ(report.end, RunEnd::finished);
  Metrics metrics = read_metrics(report.folder + "/metrics.csv");
  EXPECT_LT(metrics.steps.back().loss, metrics.steps.front().loss);
  std::string left = report.folder + "/model";
  EXPECT_EQ(read_file(left + "/config.json"), read_file(model + "/config.json"));

  // The resulting folder is a model like the original: a run on it starts at the loss that was
  // reached.
  RunReport more = train_on(1, on_folder(config("n", 2), left), quiet());
  double reached = read_metrics(more.folder + "/metrics.csv").evals.front().loss;
  EXPECT_LT(reached, metrics.evals.front().loss);

  // A resumed run loads its checkpoint and does not read the model folder again.
  Json longer = config("m", 8);
  RunReport resumed = train_on(2, Json::parse(R"({"run": {"steps": 8}})"), quiet(report.folder));
  EXPECT_EQ(resumed.step, 8);
  EXPECT_LT(resumed.loss, metrics.steps.front().loss);
}

INSTANTIATE_TEST_SUITE_P(Folders, RunTrainModel, testing::Values("gpt2", "llama", "opt", "qwen2"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(RunTrain, AFolderMayStartFromRandomWeights) {
  std::string model = folder_.path() + "/bare";
  make_folders(model);
  write_file_atomic(model + "/config.json", read_file(reference_model("qwen2") + "/config.json"));
  Json c = on_folder(config("r", 2), model);
  std::string message = error_of(c, DS_ERROR_NOT_FOUND);
  EXPECT_NE(message.find("model.safetensors"), std::string::npos) << message;
  Json patch = Json::parse(R"({"model": {"init": "random"}})");
  merge_patch(c, patch);
  RunReport report = train_on(1, c, quiet());
  EXPECT_TRUE(exists(report.folder + "/model/model.safetensors"));
  EXPECT_TRUE(exists(report.folder + "/model/config.json"));
}

// Dropout of attention weights applies in training, but not in evaluation and text generation.
TEST_F(RunTrain, AFolderIsTrainedWithItsDropout) {
  std::string model = folder_.path() + "/noisy";
  std::filesystem::copy(reference_model("gpt2"), model);
  Json noisy = Json::parse(read_file(model + "/config.json"));
  noisy.set("attn_pdrop", 0.5);
  write_file_atomic(model + "/config.json", noisy.dump());
  Json still = on_folder(config("still", 1), model),
       patch = Json::parse(R"({"model": {"dropout": null}})");
  Json moved = on_folder(config("moved", 1), model);
  for (Json* c : {&still, &moved})
    merge_patch(*c, Json::parse(R"({"optimizer": {"params": {"lr": 0}}})"));
  merge_patch(moved, patch);
  RunReport without = train_on(1, still, quiet()), with = train_on(1, moved, quiet());
  EXPECT_GT(std::abs(with.loss - without.loss), 1e-3);
  EXPECT_EQ(with.heldout_loss, without.heldout_loss);
  ASSERT_EQ(with.samples.size(), 1u);
  ASSERT_EQ(without.samples.size(), 1u);
  EXPECT_EQ(with.samples[0].text, without.samples[0].text);
}

TEST_F(RunTrain, WritesTheWholeRunFolder) {
  RunReport report = train_on(2, config("a", 6), quiet());
  EXPECT_EQ(report.end, RunEnd::finished);
  EXPECT_EQ(report.step, 6);
  Metrics metrics = read_metrics(report.folder + "/metrics.csv");
  const std::vector<StepRecord>& rows = metrics.steps;
  ASSERT_EQ(rows.size(), 6u);
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].step, static_cast<int64_t>(i) + 1);
    EXPECT_GT(rows[i].tokens_per_second, 0);
  }
  ASSERT_EQ(metrics.evals.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(metrics.evals[i].step, static_cast<int64_t>(2 * i + 2));
  EXPECT_LT(rows.back().loss, rows.front().loss);
  EXPECT_EQ(metrics.evals.back().loss, report.heldout_loss);
  EXPECT_LT(report.bigram_loss, report.unigram_loss);
  // The only sample is the final one, because run.sample_every is 0.
  ASSERT_EQ(report.samples.size(), 1u);
  EXPECT_FALSE(report.samples[0].text.empty());
  EXPECT_EQ(read_checkpoint_info(report.checkpoint).step, 6);
  std::string html = read_file(report.folder + "/report.html");
  for (const char* part :
       {"<dt>Parameters</dt>", "<dt>Held-out loss</dt>", "<dt>Tokens seen</dt>",
        "<dt>Peak memory</dt>", "2 ranks × 1 thread", "<dt>Steps</dt><dd>6<small>finished",
        "steps 1 to 6; nats per token", "after step 6</h3>",
        "Timeline of one step</h2><p class=\"span\">step 6, ranks 0 and 1"}) {
    EXPECT_NE(html.find(part), std::string::npos) << part;
  }
  Json trace = Json::parse(read_file(report.folder + "/trace.json"));
  bool ranks[2] = {};
  for (const Json& event : trace.at("traceEvents").array()) ranks[event.at("pid").integer()] = true;
  EXPECT_TRUE(ranks[0] && ranks[1]);
  Json saved = Json::parse(read_file(report.folder + "/config.json"));
  EXPECT_EQ(saved.at("origins").at("run.seed").string(), "config");
}

TEST_F(RunTrain, ASurvivorsFlightRecordNamesTheStepsOperations) {
  Json document = config("killed", 6);
  std::string url = "shm://run-killed-" + std::to_string(getpid());
  std::vector<int> codes = test::spawn_processes(2, [&](int rank) {
    auto comm = create_communicator(url, {.rank = rank, .size = 2});
    TrainOptions options = quiet();
    options.batch = [&](int64_t step, int32_t, std::span<int32_t> tokens,
                        std::span<int32_t> targets) {
      if (rank == 1 && step == 2) kill(getpid(), SIGKILL);
      std::fill(tokens.begin(), tokens.end(), 1);
      std::fill(targets.begin(), targets.end(), 2);
      return true;
    };
    EXPECT_THROW(train(document, *comm, options), Error);
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 137}));
  std::string text = read_file(document.at("run").at("dir").string() + "/flight/rank_0.txt");
  for (const char* part :
       {"rank 0 of 2", "rank 1 is dead", "reduce_scatter", "all_gather", "failed"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
  }
  std::string last = text.substr(text.rfind('\n', text.size() - 2));
  EXPECT_NE(last.find("failed"), std::string::npos) << last;
  // This operation is the first one of the next step.
  EXPECT_NE(last.find("'stop flag'"), std::string::npos) << last;
}

// The run learns its vocabulary only from the training text, and saves it in the run folder.
TEST_F(RunTrain, LearnsItsVocabularyFromTheTrainingText) {
  Json c = config("a", 4);
  merge_patch(c, Json::parse(R"({"model": {"vocab": 300}, "data": {"tokenizer": "learn"}})"));
  RunReport two = train_on(2, c, quiet());
  std::string kept = two.folder + "/data/tokenizer";
  Corpus corpus = read_corpus({.paths = {text_}, .heldout = 0.1});
  ASSERT_FALSE(corpus.heldout.empty());
  make_folders(folder_ / "own");
  learn_tokenizer(corpus.train, 300, folder_ / "own");
  EXPECT_EQ(read_file(kept + "/tokenizer.json"), read_file(folder_ / "own/tokenizer.json"));
  merge_patch(c, Json::parse(R"({"run": {"dir": ")" + folder_ / "b" + R"("}})"));
  merge_patch(c, Json::parse(R"({"gradient_accumulation_steps": 4})"));
  RunReport one = train_on(1, c, quiet());
  for (const char* name :
       {"/data/train.tokens", "/data/heldout.tokens", "/data/tokenizer/tokenizer.json"}) {
    EXPECT_EQ(read_file(one.folder + name), read_file(two.folder + name)) << name;
  }
  // The vocabulary is read instead of learned again, so the text is not needed.
  std::filesystem::remove_all(text_);
  RunReport on = train_on(1, Json::parse(R"({"run": {"steps": 6}})"), quiet(one.folder));
  EXPECT_EQ(on.step, 6);
  auto comm = create_communicator("self", {});
  GenerationRequest request{"the shard", {}, 5, {0, 0, 0}};
  EXPECT_NE(generate_text(*comm, one.folder, request), "");
  std::filesystem::remove_all(one.folder + "/data/tokenizer");
  std::string message =
      error_of(Json::parse(R"({"run": {"steps": 8}})"), DS_ERROR_NOT_FOUND, quiet(one.folder));
  EXPECT_NE(message.find("learned its vocabulary"), std::string::npos) << message;
}

TEST_F(RunTrain, AVocabularyTooSmallToLearnIsRefused) {
  Json c = config("a", 2);
  merge_patch(c, Json::parse(R"({"model": {"vocab": 256}, "data": {"tokenizer": "learn"}})"));
  std::string message = error_of(c, DS_ERROR_CONFIG);
  for (const char* part : {"model.vocab", "257", "256"})
    EXPECT_NE(message.find(part), message.npos) << message;
  EXPECT_FALSE(exists(folder_ / "a"));
}

TEST_F(RunTrain, IntermediateSamplesDoNotChangeTheRun) {
  Json c = config("a", 5), d = config("b", 5);
  merge_patch(c, Json::parse(R"({"run": {"sample_every": 2}})"));
  RunReport with = train_on(2, c, quiet()), without = train_on(2, d, quiet());
  ASSERT_EQ(with.samples.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(with.samples[i].step, (std::vector<int64_t>{0, 2, 4, 5})[i]);
    EXPECT_FALSE(with.samples[i].text.empty());
    EXPECT_EQ(with.samples[i].prompt, with.samples[0].prompt);
  }
  ASSERT_EQ(without.samples.size(), 1u);
  EXPECT_EQ(with.samples[3].text, without.samples[0].text);
  EXPECT_EQ(payload_hash(with.checkpoint), payload_hash(without.checkpoint));
  std::string html = read_file(with.folder + "/report.html");
  for (const char* part :
       {"before the first step", "after step 2<", "after step 5<", "The compiled step"}) {
    EXPECT_NE(html.find(part), html.npos) << part;
  }
  // A resumed run has only the samples of its own steps.
  Json e = config("c", 3);
  merge_patch(e, Json::parse(R"({"run": {"sample_every": 2}})"));
  RunReport first = train_on(1, e, quiet());
  RunReport rest = train_on(1, Json::parse(R"({"run": {"steps": 5}})"), quiet(first.folder));
  ASSERT_EQ(rest.samples.size(), 2u);
  EXPECT_EQ(rest.samples[0].step, 4);
}

TEST_F(RunTrain, AFinishedRunThatMissesABarFailsAndIsComplete) {
  Json c = config("a", 2);
  merge_patch(c, Json::parse(R"({"run": {"bars": ["unigram", "gzip"]}})"));
  std::string message = error_of(c, DS_ERROR_CONFIG);
  for (const char* part : {"run.bars", "after step 2", "not below unigram", "complete in"}) {
    EXPECT_NE(message.find(part), message.npos) << message;
  }
  for (const char* name : {"report.html", "metrics.csv", "trace.json"})
    EXPECT_TRUE(exists(folder_ / "a/" + name));
  std::string checkpoint = latest_checkpoint(folder_ / "a/checkpoints");
  EXPECT_EQ(read_checkpoint_info(checkpoint).step, 2);
  // A resume with no steps left does not change the verdict.
  message = error_of({}, DS_ERROR_CONFIG, quiet(folder_ / "a"));
  EXPECT_NE(message.find("not below unigram"), message.npos) << message;
  // A stopped run is not compared with its bars. With more steps, the loss meets the bar.
  volatile int32_t stop = 1;
  TrainOptions stopped = quiet(folder_ / "a");
  stopped.stop = &stop;
  Json more = Json::parse(R"({"run": {"steps": 60, "bars": ["unigram"]}})");
  EXPECT_EQ(train_on(1, more, stopped).end, RunEnd::stopped);
  RunReport good = train_on(1, more, quiet(folder_ / "a"));
  EXPECT_EQ(good.end, RunEnd::finished);
  EXPECT_LT(good.heldout_loss, good.unigram_loss);
}

TEST_F(RunTrain, AModelRuinedByItsLastStepFailsTheRun) {
  for (int sample_tokens : {0, 4}) {
    Json c = config(fmt::format("destroyed-{}", sample_tokens), 1);
    merge_patch(c, Json::parse(R"({"optimizer": {"type": "SGD", "params": {"lr": 1e31}}})"));
    merge_patch(c,
                Json::parse(fmt::format(R"({{"run": {{"sample_tokens": {}}}}})", sample_tokens)));
    std::string message = error_of(c, DS_ERROR_NUMERIC);
    EXPECT_NE(message.find("held-out loss after step 1 is not finite"), message.npos) << message;
    EXPECT_TRUE(exists(folder_ / fmt::format("destroyed-{}/report.html", sample_tokens)));
  }
}

TEST_F(RunTrain, AnUnknownOrUnmeasuredBarIsRefusedAtOnce) {
  Json c = config("a", 2), d = config("b", 2);
  merge_patch(c, Json::parse(R"({"run": {"bars": ["trigram"]}})"));
  EXPECT_NE(error_of(c, DS_ERROR_CONFIG).find("unigram, bigram, gzip"), std::string::npos);
  merge_patch(d, Json::parse(R"({"run": {"bars": ["gzip"]}, "data": {"heldout": 0}})"));
  EXPECT_NE(error_of(d, DS_ERROR_CONFIG).find("held-out"), std::string::npos);
  EXPECT_FALSE(exists(folder_ / "b"));
}

TEST_F(RunTrain, TheStopFlagSavesAndEndsTheRun) {
  volatile int32_t stop = 0;
  TrainOptions options = quiet();
  options.stop = &stop;
  options.progress = [&](const RunProgress& p) {
    if (p.step == 3) stop = 1;
    return true;
  };
  RunReport report = train_on(2, config("a", 100), options);
  EXPECT_EQ(report.end, RunEnd::stopped);
  EXPECT_EQ(report.step, 3);
  EXPECT_EQ(read_checkpoint_info(report.checkpoint).step, 3);
  EXPECT_TRUE(exists(report.folder + "/report.html"));
}

TEST_F(RunTrain, CallerSuppliesBatchesAndEndsTheRun) {
  TrainOptions options = quiet();
  std::vector<std::pair<int64_t, int32_t>> calls;
  options.batch = [&](int64_t step, int32_t micro, std::span<int32_t> tokens,
                      std::span<int32_t> targets) {
    calls.emplace_back(step, micro);
    EXPECT_EQ(tokens.size(), 64u);
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<int32_t>(i % 7);
      targets[i] = static_cast<int32_t>((i + 1) % 7);
    }
    return step < 2;
  };
  RunReport report = train_on(1, config("a", 10), options);
  EXPECT_EQ(report.end, RunEnd::callback);
  EXPECT_EQ(report.step, 2);
  EXPECT_TRUE(std::isnan(report.heldout_loss));
  std::vector<std::pair<int64_t, int32_t>> want{{0, 0}, {0, 1}, {1, 0}, {1, 1}, {2, 0}};
  EXPECT_EQ(calls, want);
}

TEST_F(RunTrain, GeneratesTheSameTextOnAnyNumberOfRanks) {
  RunReport report = train_on(1, config("a", 4), quiet());
  auto comm = create_communicator("self", {});
  // The text continues beyond the sequence length of 32.
  GenerationRequest request{"the shard", {}, 40, {0.7, 0, 3}};
  std::string parts, text = generate_text(*comm, report.folder, request, [&](auto part) {
                       parts += part;
                       return true;
                     });
  EXPECT_EQ(text, parts);
  EXPECT_EQ(text, generate_text(*comm, report.checkpoint, request));
  test::run_ranks(2, [&](Communicator& pair) {
    request.stage = 3;
    EXPECT_EQ(text, generate_text(pair, report.folder, request));
  });
  request.sampling.seed = 4;
  EXPECT_NE(text, generate_text(*comm, report.folder, request));
}

// Proves {run.generate.stop} for two ranks, which get different answers from their callbacks.
TEST_F(RunTrain, ACallbackOfAnyRankEndsTheTextOnAllRanks) {
  RunReport report = train_on(1, config("a", 4), quiet());
  GenerationRequest request{"", {97, 98}, 40, {0.7, 0, 3}};
  test::run_ranks(2, [&](Communicator& pair) {
    int parts = 0;
    const auto piece = [&](const std::string&) { return ++parts < 3 || pair.rank() == 0; };
    EXPECT_EQ(test::message_of([&] { generate_text(pair, report.folder, request, piece); },
                               DS_ERROR_USER),
              "a callback asked to stop after 3 tokens");
    EXPECT_EQ(parts, 3);
  });
}

TEST_F(RunTrain, BadInputIsNamedAndLeavesNoFolder) {
  Json missing = config("bad", 2);
  Json patch = Json::parse(R"({"data": {"paths": ["no/such/text"]}})");
  merge_patch(missing, patch);
  EXPECT_NE(error_of(missing, DS_ERROR_NOT_FOUND).find("no/such/text"), std::string::npos);
  EXPECT_FALSE(exists(folder_.path() + "/bad"));

  std::string empty = folder_.path() + "/empty.txt";
  write_file_atomic(empty, "");
  Json data, paths;
  paths.set("paths", Json::Array{empty});
  data.set("data", paths);
  Json no_text = config("bad", 2);
  merge_patch(no_text, data);
  EXPECT_NE(error_of(no_text, DS_ERROR_CONFIG).find("text"), std::string::npos);
  EXPECT_FALSE(exists(folder_.path() + "/bad"));

  Json misspelt = config("bad", 2);
  merge_patch(misspelt, Json::parse(R"({"run": {"stepz": 3}})"));
  std::string message = error_of(misspelt, DS_ERROR_CONFIG);
  EXPECT_NE(message.find("run.stepz"), std::string::npos) << message;
  EXPECT_NE(message.find("steps"), std::string::npos) << message;

  EXPECT_NE(error_of({}, DS_ERROR_NOT_FOUND, quiet(text_)).find("not a run folder"),
            std::string::npos);
}

TEST_F(RunTrain, AStopIsObeyedWhileReadingTextAndInEvaluation) {
  volatile int32_t stop = 1;
  TrainOptions options = quiet();
  options.stop = &stop;
  RunReport early = train_on(2, config("a", 2), options);
  EXPECT_EQ(early.end, RunEnd::stopped);
  EXPECT_EQ(early.folder, "");
  EXPECT_FALSE(exists(folder_ / "a"));
}

// All ranks use the rate that rank 0's callback sets, each for its part of the update: losses equal
// those of a single rank.
TEST_F(RunTrain, ACallbackSetsTheRateOfAllRanks) {
  auto losses = [&](int world, bool set) {
    Json document = config(fmt::format("{}{}", world, set), 6);
    document.set("reproducible", true);
    document.set("gradient_accumulation_steps", 4 / world);
    TrainOptions options = quiet();
    std::vector<double> out;
    options.progress = [&](RunProgress& p) {
      if (set && p.step % 2 == 1) p.next_lr = 0.05 / static_cast<double>(p.step);
      out.push_back(p.loss);
      return true;
    };
    train_on(world, document, options);
    return out;
  };
  const std::vector<double> one = losses(1, true);
  EXPECT_EQ(losses(2, true), one);
  EXPECT_NE(losses(2, false), one);
}

// The row of a step is written before the step is saved. A run that dies in between therefore has a
// surplus row, which a resume drops, and never lacks one.
TEST_F(RunTrain, ARowIsRecordedBeforeItsStepIsSaved) {
  TrainOptions options = quiet();
  std::string folder = folder_ / "a/checkpoints";
  options.progress = [&](const RunProgress& p) {
    std::string last = latest_checkpoint(folder);
    EXPECT_EQ(last.empty() ? 0 : read_checkpoint_info(last).step, (p.step - 1) / 2 * 2);
    EXPECT_EQ(read_metrics(folder_ / "a/metrics.csv").steps.back().step, p.step);
    return true;
  };
  EXPECT_EQ(train_on(1, config("a", 5), options).step, 5);
}

// A file in place of the checkpoints folder makes the save of step 2 fail, as a full disk would,
// but no other save.
TEST_F(RunTrain, ARefusedSaveIsAWarningExceptTheLast) {
  Warnings warnings;
  TrainOptions options = quiet();
  std::string place = folder_ / "a/checkpoints";
  options.progress = [&](const RunProgress& p) {
    if (p.step == 1) write_file_atomic(place, "");
    if (p.step == 3) std::filesystem::remove(place);
    return true;
  };
  RunReport report = train_on(2, config("a", 6), options);
  EXPECT_EQ(report.step, 6);
  EXPECT_EQ(list_folder(place), (std::vector<std::string>{"step-00000004-1", "step-00000006-2"}));
  ASSERT_EQ(warnings.lines().size(), 1u);
  EXPECT_NE(warnings.lines()[0].find("step 2 is not saved: "), std::string::npos)
      << warnings.lines()[0];
  options.progress = [&](const RunProgress& p) {
    if (p.step == 5) {
      std::filesystem::rename(place, place + ".away");
      write_file_atomic(place, "");
    }
    return true;
  };
  std::string message = error_of(config("b", 6), DS_ERROR_IO, [&] {
    place = folder_ / "b/checkpoints";
    return options;
  }());
  EXPECT_NE(message.find("step 6 is not saved: "), std::string::npos) << message;
  EXPECT_NE(message.find("the last checkpoint is '" + place + "/step-00000004-2'"),
            std::string::npos)
      << message;
}

TEST_F(RunTrain, MonitorsThatCannotBeWrittenAreWarnings) {
  make_folders(folder_ / "a/trace.json");
  make_folders(folder_ / "a/report.html");
  Warnings warnings;
  RunReport report = train_on(1, config("a", 4), quiet());
  EXPECT_EQ(report.end, RunEnd::finished);
  EXPECT_EQ(read_checkpoint_info(report.checkpoint).step, 4);
  EXPECT_EQ(warnings.lines().size(), 2u);
  for (const std::string& line : warnings.lines()) {
    EXPECT_NE(line.find("the run goes on without it"), std::string::npos) << line;
  }
}

TEST_F(RunTrain, ADamagedMetricsFileIsSetAside) {
  TrainOptions interrupted = quiet();
  interrupted.progress = [](const RunProgress& p) { return p.step < 3; };
  RunReport part = train_on(1, config("a", 6), interrupted);
  std::string path = part.folder + "/metrics.csv", bytes = read_file(path);
  std::string bad =
      bytes.substr(0, bytes.find('\n') + 1) + "1,nonsense\n" + bytes.substr(bytes.find("\n2,") + 1);
  write_file_atomic(path, bad);
  Warnings warnings;
  RunReport rest = train_on(1, {}, quiet(part.folder));
  EXPECT_EQ(rest.step, 6);
  EXPECT_EQ(read_file(path + ".damaged"), bad);
  std::vector<int64_t> steps;
  for (const StepRecord& row : read_metrics(path).steps) steps.push_back(row.step);
  EXPECT_EQ(steps, (std::vector<int64_t>{2, 3, 4, 5, 6}));
  ASSERT_EQ(warnings.lines().size(), 1u);
  EXPECT_NE(warnings.lines()[0].find("line 2"), std::string::npos) << warnings.lines()[0];
}

TEST_F(RunTrain, AStepWithInfinityEndsTheRunSavedAndReported) {
  Json c = config("a", 8);
  merge_patch(c, Json::parse(R"({"optimizer": {"params": {"lr": 1e38}}, "gradient_clipping": 0,
                                 "run": {"save_every": 0, "eval_every": 0}})"));
  std::string message = error_of(c, DS_ERROR_NUMERIC);
  std::string path = latest_checkpoint(folder_ / "a/checkpoints");
  ASSERT_NE(path, "");
  int64_t step = read_checkpoint_info(path).step;
  EXPECT_GT(step, 0);
  EXPECT_NE(message.find(fmt::format("saved after step {} in '{}'", step, path)), std::string::npos)
      << message;
  EXPECT_NE(message.find(fmt::format("step {} is skipped", step)), std::string::npos) << message;
  EXPECT_NE(message.find("run.max_skipped_steps is 1"), std::string::npos) << message;
  EXPECT_NE(read_file(folder_ / "a/report.html").find("NaN or infinity"), std::string::npos);
  EXPECT_EQ(read_metrics(folder_ / "a/metrics.csv").steps.size(), static_cast<size_t>(step - 1));
}

// The model is ruined, but the configuration allows skipped steps: every step after the first is
// skipped and counted.
TEST_F(RunTrain, ARunContinuesOverAsManySkippedStepsAsAllowed) {
  for (int64_t most : {3, 4}) {
    std::string name = fmt::format("skips-{}", most);
    Json c = config(name, 6);
    merge_patch(c, Json::parse(fmt::format(
                       R"({{"optimizer": {{"params": {{"lr": 1e38}}}}, "gradient_clipping": 0,
        "run": {{"save_every": 0, "eval_every": 0, "sample_tokens": 0, "max_skipped_steps": {}}}}})",
                       most)));
    std::string message = error_of(c, DS_ERROR_NUMERIC);
    EXPECT_NE(message.find(fmt::format("max_skipped_steps is {}", most)), std::string::npos)
        << message;
    CheckpointInfo saved =
        read_checkpoint_info(latest_checkpoint(folder_ / (name + "/checkpoints")));
    EXPECT_EQ(saved.skipped, most);
    EXPECT_EQ(saved.step - saved.skipped,
              static_cast<int64_t>(read_metrics(folder_ / (name + "/metrics.csv")).steps.size()));
  }
}

// A loss scale of 2^30 overflows, and so do some lower scales, without ending the run. If the
// minimum scale is too high, the first overflow at the minimum ends the run.
TEST_F(RunTrain, TheSearchForALossScaleDoesNotEndTheRun) {
  Json c = config("fp16", 24);
  merge_patch(c,
              Json::parse(R"({"fp16": {"enabled": true, "initial_scale_power": 30, "hysteresis": 1},
      "run": {"save_every": 0, "eval_every": 0, "sample_tokens": 0}, "jsonl_monitor": {"enabled": true}})"));
  const std::string job = folder_ / "monitors/job";
  c.set(
      "csv_monitor",
      Json::Object{{"enabled", true}, {"output_path", folder_ / "monitors"}, {"job_name", "job"}});
  RunReport report = train_on(1, c, quiet());
  EXPECT_EQ(report.step, 24);
  const auto lines_with = [](const std::string& path, std::string_view words) {
    std::istringstream text(read_file(path));
    int64_t count = 0;
    for (std::string line; std::getline(text, line);)
      count += line.find(words) != line.npos ? 1 : 0;
    return count;
  };
  // Each file also has a header line.
  for (const char* event : {"train_loss", "lr", "loss_scale"})
    EXPECT_EQ(lines_with(job + "/Train_Samples_" + event + ".csv", ","), 25) << event;
  EXPECT_EQ(lines_with(report.folder + "/metrics.jsonl", "\"lr\": "), 24);
  EXPECT_EQ(lines_with(report.folder + "/metrics.jsonl", "\"skipped\": true, \"loss\": "),
            report.skipped);
  EXPECT_GT(report.skipped, 3);
  EXPECT_LT(report.skipped, 20);
  CheckpointInfo saved = read_checkpoint_info(report.checkpoint);
  ASSERT_TRUE(saved.scaler);
  EXPECT_EQ(saved.scaler->scale, std::ldexp(1.0, 30 - static_cast<int>(report.skipped)));
  EXPECT_EQ(saved.scaler->steps, 24);
  EXPECT_EQ(report.loss_scale, saved.scaler->scale);
  // A run that never updates also reports that.
  Json none = config("none", 5);
  merge_patch(none,
              Json::parse(R"({"fp16": {"enabled": true, "initial_scale_power": 60, "hysteresis": 1},
      "run": {"save_every": 0, "eval_every": 0, "sample_tokens": 0}})"));
  testing::internal::CaptureStdout();
  TrainOptions plain;
  plain.quiet = 1;
  RunReport nothing = train_on(1, none, plain);
  std::string lines = testing::internal::GetCapturedStdout();
  EXPECT_EQ(nothing.skipped, 5);
  EXPECT_NE(lines.find("5 of 5 steps were skipped"), std::string::npos) << lines;
  EXPECT_NE(lines.find(fmt::format("the loss scale is {} now", std::ldexp(1.0, 55))),
            std::string::npos)
      << lines;
  std::string html = read_file(nothing.folder + "/report.html");
  EXPECT_NE(html.find("<dt>Skipped steps</dt><dd>5"), std::string::npos);
  Json floor = config("floor", 24);
  merge_patch(floor,
              Json::parse(R"({"fp16": {"enabled": true, "initial_scale_power": 30, "hysteresis": 1,
      "min_loss_scale": 268435456}, "run": {"save_every": 0, "eval_every": 0, "sample_tokens": 0}})"));
  std::string message = error_of(floor, DS_ERROR_NUMERIC);
  EXPECT_NE(message.find("step 3 is skipped"), std::string::npos) << message;
  EXPECT_NE(message.find("the loss scale is 268435456"), std::string::npos) << message;
}

}  // namespace
}  // namespace ds
