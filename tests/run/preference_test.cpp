// Runs on pairs of a chosen and a rejected answer: TRL's numbers, the reference's losses, bits, and
// bad input. tests/interop/preference.py has recorded the numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/payload.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "data/pairs.h"
#include "io/file.h"
#include "run/setup.h"
#include "run/train.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "support/train_ranks.h"

namespace ds {
namespace {

constexpr const char* kNumbers[] = {
    "loss",           "grad_norm", "rewards/chosen", "rewards/rejected", "rewards/accuracies",
    "rewards/margins"};

std::string data_of(const std::string& name) {
  return std::string(DS_SOURCE_DIR) + "/tests/data/preference/" + name;
}

class PreferenceRun : public testing::Test {
 protected:
  // Returns the configuration of the recorded steps on one rank, with changes.
  Json config(const std::string& dir, const std::string& model, const Json& keys, int64_t steps,
              const std::string& changes = "{}") const {
    Json c = Json::parse(R"({
      "train_micro_batch_size_per_gpu": 6, "gradient_clipping": 1.0,
      "optimizer": {"type": "AdamW",
                    "params": {"lr": 0.0005, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0}},
      "jsonl_monitor": {"enabled": true},
      "data": {"format": "jsonl", "heldout": 0},
      "run": {"sequence": 48, "threads": 1, "sample_tokens": 0}
    })");
    Json patch, run, data, folder;
    run.set("dir", folder_ / dir);
    run.set("steps", steps);
    data.set("paths", Json::Array{data_of(model) + "/pairs.jsonl"});
    folder.set("folder", data_of(model));
    patch.set("run", run);
    patch.set("data", data);
    patch.set("model", folder);
    patch.set("preference", keys);
    merge_patch(c, patch);
    merge_patch(c, Json::parse(changes));
    return c;
  }

  Json sigmoid() const { return Json::parse(R"({"loss_type": "sigmoid", "beta": 0.3})"); }

  static RunReport train(int ranks, const Json& config, const std::string& resume = "") {
    TrainOptions options;
    options.quiet = 2;
    options.resume = resume;
    return test::train_on(ranks, config, options);
  }

  static std::string error_of(const Json& config, ds_status status = DS_ERROR_CONFIG) {
    TrainOptions options;
    options.quiet = 2;
    return test::train_error(config, status, options);
  }

  // Returns the lines of the steps in metrics.jsonl.
  static std::vector<Json> steps_of(const RunReport& report) {
    std::vector<Json> out;
    const std::string text = read_file(report.folder + "/metrics.jsonl");
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find('\n', at);
      Json line = Json::parse(text.substr(at, end - at));
      if (line.find("lr")) out.push_back(std::move(line));
      at = end + 1;
    }
    return out;
  }

  std::string write_pairs(const std::string& name, const std::string& lines) const {
    write_file_atomic(folder_ / name, lines);
    return folder_ / name;
  }

  std::string refused(const std::string& line) const {
    Json c = config("bad", "gpt2", sigmoid(), 1);
    Json data, patch;
    data.set("paths", Json::Array{write_pairs("bad.jsonl", line + "\n")});
    patch.set("data", data);
    merge_patch(c, patch);
    return error_of(c);
  }

  test::TempFolder folder_;
};

// f32 steps of TRL on torch differ from ours by rounding alone: 1.2e-6 were measured.
TEST_F(PreferenceRun, TwentyStepsAreTRLs) {
  for (const std::string model : {"gpt2", "llama"}) {
    const Json golden = Json::parse(read_file(data_of(model) + "/golden.json"));
    for (const auto& [loss, theirs] : golden.at("losses").object()) {
      const std::vector<Json> ours =
          steps_of(train(1, config(model + loss, model, theirs.at("keys"), 20)));
      ASSERT_EQ(ours.size(), 20U);
      for (const char* number : kNumbers) {
        for (size_t i = 0; i < ours.size(); ++i) {
          const double want = theirs.at(number).array()[i].number();
          EXPECT_NEAR(ours[i].at(number).number(), want, 2e-5 * std::max(1.0, std::abs(want)))
              << model << " " << loss << " " << number << " step " << i + 1;
        }
      }
    }
  }
}

// The same pairs in other micro-batches, on other numbers of ranks and at other stages.
TEST_F(PreferenceRun, RanksAndStagesHaveTheSameBits) {
  std::set<std::string> hashes, references;
  for (const auto& [ranks, stage] : {std::pair(1, 0), {1, 3}, {2, 1}, {4, 2}, {4, 3}}) {
    const std::string changes = R"({"train_micro_batch_size_per_gpu": 1, "reproducible": true,
        "recompute": ")" + std::string(stage == 3 ? "layers" : "none") +
                                R"(", "gradient_accumulation_steps": )" +
                                std::to_string(4 / ranks) + R"(, "zero_optimization": {"stage": )" +
                                std::to_string(stage) + "}}";
    const std::string dir = "r" + std::to_string(ranks) + std::to_string(stage);
    const RunReport report = train(ranks, config(dir, "llama", sigmoid(), 3, changes));
    hashes.insert(payload_hash(report.checkpoint));
    references.insert(read_file(report.folder + "/data/reference.losses"));
    const std::vector<Json> steps = steps_of(report);
    EXPECT_NEAR(steps[0].at("loss").number(), std::log(2), 1e-6);
    EXPECT_EQ(steps[0].at("rewards/margins").number(), 0);
  }
  EXPECT_EQ(hashes.size(), 1U);
  EXPECT_EQ(references.size(), 1U);
}

// A resumed run has the reference of the model that it began with, not of its own.
TEST_F(PreferenceRun, AResumedRunKeepsItsReference) {
  const std::string changes =
      R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4,
          "bf16": {"enabled": true}, "reproducible": true})";
  const RunReport whole = train(1, config("whole", "gpt2", sigmoid(), 6, changes));
  const RunReport part = train(1, config("part", "gpt2", sigmoid(), 3, changes));
  const std::string more = R"({"run": {"steps": 6}, "gradient_accumulation_steps": 1})";
  const RunReport rest = train(4, Json::parse(more), part.folder);
  EXPECT_EQ(steps_of(rest).back().at("loss").number(), steps_of(whole).back().at("loss").number());
  const std::string file = part.folder + "/data/reference.losses";
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  TrainOptions options;
  options.quiet = 2;
  options.resume = part.folder;
  test::expect_names(
      test::train_error(Json::parse(R"({"run": {"steps": 7}})"), DS_ERROR_CORRUPT, options),
      {"reference.losses", "0 of 12 texts"});
}

// Of a run that was killed before its first step, the first whole record is kept; the rest of the
// file is computed again, here on another number of ranks.
TEST_F(PreferenceRun, AKilledComputationContinues) {
  std::string lines;
  for (int i = 0; i < 400; ++i) {
    const std::string n = std::to_string(i);
    lines += R"({"prompt": "Say )" + n + R"(:", "chosen": " tide )" + n +
             R"(", "rejected": " bell"})"
             "\n";
  }
  Json data, patch;
  data.set("paths", Json::Array{write_pairs("many.jsonl", lines)});
  patch.set("data", data);
  Json c = config("killed", "gpt2", sigmoid(), 1,
                  R"({"train_micro_batch_size_per_gpu": 6, "gradient_accumulation_steps": 2,
                      "run": {"sequence": 16}, "data": {"heldout": 0.2}})");
  merge_patch(c, patch);
  const RunReport whole = train(1, c);
  const std::string file = whole.folder + "/data/reference.losses", bytes = read_file(file),
                    payload = payload_hash(whole.checkpoint);
  constexpr size_t kHeader = 256, kRecord = 513 * sizeof(double);
  ASSERT_GT(bytes.size(), kHeader + kRecord);
  std::filesystem::remove_all(whole.folder + "/checkpoints");
  std::string damaged = bytes.substr(0, kHeader + kRecord + 100);
  write_file_atomic(file, damaged);
  const RunReport rest =
      train(2, Json::parse(R"({"gradient_accumulation_steps": 1})"), whole.folder);
  EXPECT_EQ(read_file(file), bytes);
  EXPECT_EQ(payload_hash(rest.checkpoint), payload);
  // A record that was changed is computed again, too.
  std::filesystem::remove_all(whole.folder + "/checkpoints");
  damaged = bytes;
  damaged[kHeader + 3] ^= 1;
  write_file_atomic(file, damaged);
  train(1, Json(), whole.folder);
  EXPECT_EQ(read_file(file), bytes);
}

// A file that another run has computed is read, and refused for another model.
TEST_F(PreferenceRun, AReferenceOfAnotherRunIsChecked) {
  const RunReport first = train(1, config("first", "gpt2", sigmoid(), 2));
  Json keys = sigmoid();
  keys.set("reference", first.folder + "/data/reference.losses");
  const RunReport second = train(1, config("second", "gpt2", keys, 2));
  EXPECT_EQ(payload_hash(second.checkpoint), payload_hash(first.checkpoint));
  EXPECT_FALSE(exists(second.folder + "/data/reference.losses"));
  test::expect_names(error_of(config("third", "gpt2", keys, 2, R"({"bf16": {"enabled": true}})")),
                     {"preference.reference", "belongs to other model", "but this run has"});
  keys.set("reference", folder_ / "none");
  test::expect_names(error_of(config("fourth", "gpt2", keys, 2), DS_ERROR_NOT_FOUND), {"none"});
}

// The first step of an adapter whose B is zero has the losses of its base.
TEST_F(PreferenceRun, TheReferenceOfAnAdapterIsItsBase) {
  const std::string changes = R"({"adapter": {"r": 2, "target_modules": "all-linear"}})";
  const RunReport base = train(1, config("base", "llama", sigmoid(), 1));
  const RunReport adapted = train(1, config("adapted", "llama", sigmoid(), 4, changes));
  EXPECT_EQ(read_file(adapted.folder + "/data/reference.losses"),
            read_file(base.folder + "/data/reference.losses"));
  const std::vector<Json> steps = steps_of(adapted);
  EXPECT_EQ(steps[0].at("rewards/margins").number(), 0);
  EXPECT_GT(steps[3].at("rewards/margins").number(), 0);
}

// Held-out pairs have rewards of their own, and both forms of a prompt and messages are read.
TEST_F(PreferenceRun, HeldOutPairsOfEachFormAreEvaluated) {
  std::string lines;
  for (int i = 0; i < 9; ++i) {
    const std::string n = std::to_string(i);
    lines +=
        R"({"prompt": "Say )" + n +
        R"(:", "chosen": " tide", "rejected": " bell rope"})"
        "\n" +
        R"({"chosen": "Spell )" + n + R"( bell", "rejected": "Spell )" + n +
        R"( mast"})"
        "\n" +
        R"({"chosen": [{"role": "user", "content": "Q)" + n +
        R"("}, {"role": "assistant", "content": "sail"}], "rejected": [{"role": "user", "content": "Q)" +
        n +
        R"("}, {"role": "assistant", "content": "fog"}]})"
        "\n";
  }
  Json data, patch;
  data.set("paths", Json::Array{write_pairs("forms.jsonl", lines)});
  patch.set("data", data);
  std::set<double> losses;
  for (int ranks : {1, 3}) {
    Json c = config("heldout" + std::to_string(ranks), "gpt2", sigmoid(), 2,
                    R"({"train_micro_batch_size_per_gpu": 2, "data": {"heldout": 0.25},
                        "gradient_accumulation_steps": )" +
                        std::to_string(3 / ranks) + "}");
    merge_patch(c, patch);
    const RunReport report = train(ranks, c);
    losses.insert(report.heldout_loss);
    EXPECT_NE(read_file(report.folder + "/metrics.jsonl").find("heldout_loss"), std::string::npos);
    EXPECT_GT(report.heldout_loss, 0);
  }
  EXPECT_EQ(losses.size(), 1U);
}

TEST_F(PreferenceRun, BadPairsAreRefusedByLine) {
  const std::string bad = "bad.jsonl' line 1: ";
  for (const auto& [line, says] : std::vector<std::pair<std::string, std::string>>{
           {R"({"chosen": "a", "rejected": "b"})", "the pair has no prompt"},
           {R"({"prompt": "", "chosen": "a", "rejected": "b"})", "\"prompt\" is empty"},
           {R"({"prompt": "p", "chosen": "a", "rejected": "a"})", "are equal"},
           {R"({"prompt": "p", "chosen": "a", "rejected": ""})",
            "\"rejected\" is an empty completion"},
           {R"({"prompt": "p", "completion": "a"})", "has no \"chosen\""},
           {R"({"prompt": "p", "chosen": "a", "rejected": ["b"]})", "of one kind"},
           {R"({"prompt": [{"role": "user", "content": "q"}], "chosen": [], "rejected": [{"role":
               "assistant", "content": "x"}]})",
            "line 1"}})
    test::expect_names(refused(line), {says.c_str()});
  test::expect_names(refused(R"({"chosen": "a", "rejected": "b"})"), {bad.c_str()});
}

TEST_F(PreferenceRun, KeysThatContradictAreRefused) {
  for (const auto& [keys, more, says] : std::vector<std::array<std::string, 3>>{
           {R"({"loss_type": "dpo"})", "{}", "preference.loss_type"},
           {R"({"loss_type": "hinge", "label_smoothing": 0.1})", "{}",
            "preference.label_smoothing"},
           {R"({"loss_type": "ipo", "simpo_gamma": 1})", "{}", "preference.simpo_gamma"},
           {R"({"loss_type": "orpo", "reference": "x"})", "{}", "preference.reference"},
           {R"({"beta": 0})", "{}", "preference.beta"},
           {R"({"beta": 1})", R"({"data": {"format": "text"}})", "data.format"},
           {R"({"beta": 1})", R"({"loss_average": "tokens"})", "loss_average"},
           {R"({"beta": 1})", R"({"data": {"packing": true}})", "data.packing"},
           {R"({"beta": 1, "truncation_mode": "keep_end"})", "{}", "preference.truncation_mode"}})
    test::expect_names(error_of(config("keys", "gpt2", Json::parse(keys), 1, more)),
                       {says.c_str()});
}

// The texts of TRL's extract_prompt.
TEST(PairLines, ThePromptIsTheCommonBeginning) {
  auto lines = [](const std::string& chosen, const std::string& rejected) {
    Json line;
    line.set("chosen", chosen);
    line.set("rejected", rejected);
    const auto both = pair_lines(line.dump(), "line");
    return Json::parse(both[0]).at("prompt").string() + "|" +
           Json::parse(both[0]).at("completion").string() + "|" +
           Json::parse(both[1]).at("completion").string();
  };
  EXPECT_EQ(lines("The sky is blue.", "The sky is green."), "The sky is| blue.| green.");
  EXPECT_EQ(lines("ab", "abc"), "a|b|bc");
  EXPECT_EQ(lines("x\xc3\xa9", "x\xc3\xa8"), "x|\xc3\xa9|\xc3\xa8");
}

}  // namespace
}  // namespace ds
