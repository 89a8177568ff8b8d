// Tests runs on model folders of masked language models.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "checkpoint/payload.h"
#include "core/base/error.h"
#include "data/masking.h"
#include "data/token_file.h"
#include "generation/generate_text.h"
#include "io/file.h"
#include "monitor/metrics.h"
#include "run/setup.h"
#include "run/train.h"
#include "support/temp_folder.h"
#include "support/train_ranks.h"

namespace ds {
namespace {

const std::string kData = std::string(DS_SOURCE_DIR) + "/tests/data/";

std::string prose(int sentences) {
  static const char* words[] = {"the", "harbour", "counts", "a",     "lantern",
                                "of",  "rows",    "and",    "waves", "it"};
  std::string text;
  for (int i = 0; i < sentences; ++i) {
    for (int w = 0; w < 9; ++w)
      text += std::string(words[(i * 7 + w * w + i / 3) % 10]) + (w == 8 ? ".\n" : " ");
  }
  return text;
}

class MaskedRun : public testing::Test {
 protected:
  void SetUp() override {
    make_folders(folder_ / "text");
    write_file_atomic(folder_ / "text/a.txt", prose(200));
    write_file_atomic(folder_ / "text/b.txt", prose(230).substr(900));
  }

  // Returns a copy of the reference folder with changes in its config.json.
  std::string model(const std::string& changes = "{}") const {
    std::string to = folder_ / "model";
    if (std::filesystem::exists(to)) return to;
    std::filesystem::copy(kData + "models/bert", to);
    Json config = Json::parse(read_file(to + "/config.json"));
    merge_patch(config, Json::parse(changes));
    write_file_atomic(to + "/config.json", config.dump());
    return to;
  }

  // Returns the configuration of a run on bytes, which have no mask token; the model's vocabulary
  // has 120 tokens.
  Json config(const std::string& dir, int steps, const std::string& model_folder,
              const std::string& changes = "{}") const {
    Json c = Json::parse(R"({
      "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4,
      "optimizer": {"type": "AdamW", "params": {"lr": 0.003}},
      "data": {"heldout": 0.1, "tokenizer": "bytes", "mask_token": 1},
      "run": {"sequence": 24, "eval_every": 2, "eval_samples": 8, "seed": 5, "threads": 1}
    })");
    merge_patch(c, Json::parse(changes));
    Json patch, run, data, section;
    run.set("dir", folder_ / dir);
    run.set("steps", steps);
    data.set("paths", Json::Array{folder_ / "text"});
    section.set("folder", model_folder);
    patch.set("run", run);
    patch.set("data", data);
    patch.set("model", section);
    merge_patch(c, patch);
    return c;
  }

  static RunReport train_on(int ranks, const Json& config, TrainOptions options = {}) {
    options.quiet = 2;
    return test::train_on(ranks, config, options);
  }

  static std::string error_of(const Json& config, ds_status status = DS_ERROR_CONFIG) {
    TrainOptions options;
    options.quiet = 2;
    return test::train_error(config, status, options);
  }

  static std::vector<StepRecord> rows(const RunReport& report) {
    return read_metrics(report.folder + "/metrics.csv").steps;
  }

  test::TempFolder folder_;
};

TEST_F(MaskedRun, TrainsAFolderAndSavesOneThatLoads) {
  RunReport report = train_on(2, config("a", 40, model()));
  EXPECT_EQ(report.end, RunEnd::finished);
  EXPECT_TRUE(report.samples.empty());
  EXPECT_TRUE(std::isnan(report.unigram_loss));
  std::vector<EvalRecord> evals = read_metrics(report.folder + "/metrics.csv").evals;
  EXPECT_LT(evals.back().loss, 0.75 * evals.front().loss);
  std::string left = report.folder + "/model";
  EXPECT_EQ(read_file(left + "/config.json"), read_file(model() + "/config.json"));
  // A run on the saved folder with a learning rate of 0 starts at the loss that was reached.
  Json again = config("b", 2, left, R"({"optimizer": {"params": {"lr": 0}}, "run": {"seed": 6}})");
  EXPECT_EQ(read_metrics(train_on(2, again).folder + "/metrics.csv").evals.front().loss,
            evals.back().loss);
}

// Compares numbers of ranks, stages and tiers, with dropout in branches and attention weights.
TEST_F(MaskedRun, LossesAndWeightsAreEqualOverRanksAndStages) {
  std::string noisy = model(R"({"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.2})");
  std::set<std::string> hashes;
  std::vector<std::vector<StepRecord>> runs;
  for (auto [ranks, stage] : {std::pair{1, 0}, {1, 3}, {2, 0}, {2, 2}, {2, 3}, {4, 1}}) {
    std::string name = "r" + std::to_string(ranks) + "s" + std::to_string(stage);
    Json c = config(name, 4, noisy, R"({"reproducible": true})"), patch, zero;
    zero.set("stage", stage);
    zero.set("stage3_param_persistence_threshold", 100);
    if (ranks == 2) zero.set("offload_optimizer", Json::parse(R"({"device": "cpu"})"));
    patch.set("zero_optimization", zero);
    patch.set("gradient_accumulation_steps", 4 / ranks);
    merge_patch(c, patch);
    RunReport report = train_on(ranks, c);
    hashes.insert(payload_hash(report.checkpoint));
    runs.push_back(rows(report));
  }
  EXPECT_EQ(hashes.size(), 1u);
  for (const auto& run : runs) {
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(run[i].loss, runs[0][i].loss) << i;
  }
}

TEST_F(MaskedRun, ResumeIsBitEqual) {
  std::string noisy = model(R"({"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1})");
  RunReport whole = train_on(2, config("whole", 6, noisy));
  RunReport part = train_on(2, config("part", 3, noisy));
  TrainOptions options;
  options.resume = part.folder;
  RunReport rest = train_on(2, Json::parse(R"({"run": {"steps": 6}})"), options);
  EXPECT_EQ(payload_hash(rest.checkpoint), payload_hash(whole.checkpoint));
  EXPECT_EQ(rows(rest).back().loss, rows(whole).back().loss);
  EXPECT_NE(rows(whole)[0].loss, rows(whole)[1].loss);
}

// With a learning rate of 0, the held-out loss is equal at every step and for every seed.
TEST_F(MaskedRun, HeldOutLossDoesNotDependOnStepOrSeed) {
  std::set<double> losses;
  for (int seed : {1, 2}) {
    Json c = config("s" + std::to_string(seed), 6, model(),
                    R"({"optimizer": {"params": {"lr": 0}}})"),
         patch, run;
    run.set("seed", seed);
    patch.set("run", run);
    merge_patch(c, patch);
    for (const EvalRecord& e : read_metrics(train_on(1, c).folder + "/metrics.csv").evals)
      losses.insert(e.loss);
  }
  EXPECT_EQ(losses.size(), 1u);
  EXPECT_GT(*losses.begin(), 1);
}

// The tokenizer has [CLS], [SEP] and [MASK]: rows begin with [CLS] and end with [SEP], which also
// separates files.
TEST_F(MaskedRun, TrainsOnWordPieces) {
  std::string to = folder_ / "pieces";
  std::filesystem::copy(kData + "tokenizers/bert_vocabulary", to);
  Json small = Json::parse(read_file(kData + "models/bert/config.json"));
  small.set("vocab_size", 667);
  write_file_atomic(to + "/config.json", small.dump());
  Json c = config("a", 30, to,
                  R"({"data": {"tokenizer": null, "mask_token": null, "heldout": 0.05}})"),
       patch;
  patch.set("model", Json::parse(R"({"init": "random"})"));
  merge_patch(c, patch);
  RunReport report = train_on(1, c);
  std::vector<EvalRecord> evals = read_metrics(report.folder + "/metrics.csv").evals;
  EXPECT_LT(evals.back().loss, 0.8 * evals.front().loss);
  TokenFile text(report.folder + "/data/train.tokens");
  std::vector<int32_t> tokens(static_cast<size_t>(text.size()));
  text.copy(0, tokens);
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), 2), 0);  // Token 2 is [CLS].
  EXPECT_GE(std::count(tokens.begin(), tokens.end(), 3), 1);  // Token 3 is [SEP].
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), 4), 0);  // Token 4 is [MASK].
  EXPECT_TRUE(exists(report.folder + "/data/tokenizer/vocab.txt"));
}

// Targets that the caller supplies are used without masking.
TEST_F(MaskedRun, CallerSuppliesTargets) {
  TrainOptions options;
  options.batch = [](int64_t, int32_t, std::span<int32_t> tokens, std::span<int32_t> targets) {
    std::fill(tokens.begin(), tokens.end(), 9);
    std::fill(targets.begin(), targets.end(), kNoTarget);
    targets[3] = 7;
    return true;
  };
  RunReport report =
      train_on(1, config("a", 60, model(), R"({"data": {"mask_token": null}})"), options);
  EXPECT_LT(rows(report).back().loss, 0.1 * rows(report).front().loss);
}

TEST_F(MaskedRun, GeneratesNoText) {
  RunReport report = train_on(1, config("a", 2, model()));
  auto comm = create_communicator("threads://masked_text", {0, 1, 20000, 20000});
  GenerationRequest request =
      generation_request("", Json::parse(R"({"ids": [5, 6], "tokens": 4})"));
  for (const std::string& folder : {report.folder, model()}) {
    try {
      generate_text(*comm, folder, request);
      ADD_FAILURE() << folder;
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), DS_ERROR_UNSUPPORTED);
      EXPECT_NE(std::string(e.what()).find("bert model, which predicts masked tokens"),
                std::string::npos)
          << e.what();
    }
  }
}

TEST_F(MaskedRun, BadInputIsNamedAndLeavesNoFolder) {
  auto refused = [&](const std::string& changes, std::initializer_list<const char*> parts,
                     ds_status status = DS_ERROR_CONFIG) {
    std::string message = error_of(config("bad", 2, model(), changes), status);
    for (const char* part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << message << "\nlacks " << part;
    EXPECT_FALSE(exists(folder_ / "bad"));
  };
  refused(R"({"data": {"mask_token": null}})",
          {"data.mask_token: missing", "'bytes' names no mask token"});
  refused(R"({"data": {"mask_token": 120}})", {"data.mask_token", "0 to 119", "got 120"});
  refused(R"({"data": {"mask_token": -1}})", {"data.mask_token", "-1"});
  refused(R"({"data": {"mlm_probability": 0}})", {"data.mlm_probability: must be above 0"});
  refused(R"({"data": {"mlm_probability": 1.5}})", {"data.mlm_probability", "1.5"});
  refused(R"({"data": {"mask_replace_prob": 0.9, "random_replace_prob": 0.2}})",
          {"0.9", "0.2", "at most 1"});
  refused(R"({"data": {"mask_replace_probability": 0.9}})", {"data.mask_replace_prob"});

  Json causal = config("bad", 2, kData + "models/gpt2");
  EXPECT_NE(error_of(causal).find(
                "data.mask_token: works only for models that predict masked tokens; family gpt2"),
            std::string::npos);
  Json bare = Json::parse(R"({"train_micro_batch_size_per_gpu": 1, "data": {"mlm_probability": 0.2},
                              "model": {"family": "gpt", "layers": 1, "hidden": 8, "heads": 1}})");
  EXPECT_NE(error_of(bare).find("data.mlm_probability: needs model.folder"), std::string::npos);
}

}  // namespace
}  // namespace ds
