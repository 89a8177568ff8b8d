// Tests learning rates in whole runs: dynamic batching scales them and the progress callback sets
// them, in random combinations with optimizers and groups. The results must equal those of runs
// that are configured with the scaled rates.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/payload.h"
#include "core/base/json.h"
#include "io/file.h"
#include "monitor/metrics.h"
#include "run/setup.h"
#include "run/train.h"
#include "support/dice.h"
#include "support/temp_folder.h"
#include "support/train_ranks.h"

namespace ds {
namespace {

using test::Dice;

// A step has two groups of at most 36 tokens, each of which can hold three documents of 12.
constexpr int kDocuments = 3, kSteps = 5;

struct RunCase {
  std::string optimizer, method;
  std::map<std::string, double> rates, of_group;
  // The callback sets a rate after this step. 0 means never.
  int set_at = 0;
  double set_to = 0;
  // The run is saved and resumed after this step. 0 means never.
  int resume_at = 0;
  int stage = 0, ranks = 1;
};

RunCase draw(uint64_t seed) {
  Dice dice(seed, 8);
  RunCase c;
  c.optimizer =
      dice.pick({"AdamW", "SGD", "Lion", "Adagrad", "Lamb", "OneBitAdam", "Muon", "Muon"});
  c.method = dice.pick({"linear", "linear", "sqrt", "none"});
  const auto rate = [&] { return dice.pick({0.001, 0.004, 0.01}); };
  c.rates["lr"] = rate();
  if (c.optimizer == "Muon" && dice.one_in(2)) c.rates = {{"muon_lr", rate()}, {"adam_lr", rate()}};
  if (dice.one_in(2)) c.of_group["lr"] = rate();
  if (dice.one_in(2) && c.optimizer == "Muon") c.of_group["adam_lr"] = rate();
  if (!dice.one_in(3)) c.set_at = static_cast<int>(1 + dice.below(kSteps - 2));
  c.set_to = dice.one_in(3) ? 0 : rate() * 3;
  if (dice.one_in(2)) c.resume_at = static_cast<int>(1 + dice.below(kSteps - 1));
  c.ranks = static_cast<int>(dice.pick({1, 2}));
  c.stage = static_cast<int>(c.optimizer == "OneBitAdam" ? 1 : dice.below(4));
  return c;
}

Json numbers(const std::map<std::string, double>& values, double factor) {
  Json out = Json::Object();
  for (const auto& [name, value] : values) out.set(name, value * factor);
  return out;
}

// Returns the configuration of a run. `factor` multiplies every rate; `method` is dynamic
// batching's scaling method.
Json config_of(const RunCase& c, const std::string& folder, const std::string& name, double factor,
               const std::string& method) {
  Json out = Json::parse(R"({
      "train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0,
      "model": {"family": "gpt", "layers": 1, "hidden": 16, "heads": 2},
      "data": {"format": "jsonl", "heldout": 0, "tokenizer": "bytes"},
      "run": {"sequence": 36, "seed": 5, "threads": 1, "sample_tokens": 0, "save_every": 1, "keep": 0},
      "data_efficiency": {"enabled": true, "data_sampling": {"enabled": true,
        "dynamic_batching": {"enabled": true, "max_tokens": 36}}}})");
  Json optimizer = Json::Object(), groups = Json::Array();
  optimizer.set("type", c.optimizer);
  optimizer.set("params", numbers(c.rates, factor));
  if (!c.of_group.empty()) {
    Json group = numbers(c.of_group, factor);
    group.set("params", "*.bias");
    groups.array().push_back(group);
    optimizer.set("param_groups", groups);
  }
  out.set("optimizer", optimizer);
  out.set("gradient_accumulation_steps", 2 / c.ranks);
  Json patch = Json::parse(R"({"run": {}, "data": {}, "zero_optimization": {}, "data_efficiency":
      {"data_sampling": {"dynamic_batching": {}}}})");
  Json run = Json::Object(), data = Json::Object(), zero = Json::Object();
  run.set("dir", folder + "/" + name);
  run.set("steps", kSteps);
  data.set("paths", folder + "/a.jsonl");
  zero.set("stage", c.stage);
  patch.set("run", run);
  patch.set("data", data);
  patch.set("zero_optimization", zero);
  merge_patch(out, patch);
  merge_patch(out, Json::parse(R"({"data_efficiency": {"data_sampling": {"dynamic_batching":
      {"lr_scaling_method": ")" +
                               method + "\"}}}}"));
  return out;
}

struct RunOutcome {
  std::string hash;
  // The rate of each step, and the next rate as the callback got it.
  std::vector<double> rates, next;
};

RunOutcome run(const RunCase& c, Json config, double set_to, int resume_at) {
  RunOutcome out;
  TrainOptions options;
  options.quiet = 2;
  options.progress = [&](RunProgress& p) {
    out.next.push_back(p.next_lr);
    if (p.step == c.set_at) p.next_lr = set_to;
    // Ends the run, which saves a checkpoint.
    return p.step != resume_at;
  };
  RunReport report = test::train_on(c.ranks, config, options);
  if (report.step < kSteps) {
    options.resume = report.folder;
    report = test::train_on(c.ranks, Json::Object(), options);
  }
  for (const StepRecord& row : read_metrics(report.folder + "/metrics.csv").steps)
    out.rates.push_back(row.lr);
  out.hash = payload_hash(report.checkpoint);
  return out;
}

TEST(RunRates, ScaledAndSetRatesEqualConfiguredOnes) {
  test::TempFolder folder;
  std::string lines;
  for (int i = 0; i < 60; ++i)
    lines += R"({"text": ")" + std::string(11, static_cast<char>('a' + i % 26)) + "\"}\n";
  write_file_atomic(folder / "a.jsonl", lines);
  uint64_t first = 0, end = 8;
  if (const char* wanted = std::getenv("DS_RATE_SEEDS")) {
    char* rest = nullptr;
    first = std::strtoull(wanted, &rest, 10);
    end = *rest == ':' ? std::strtoull(rest + 1, nullptr, 10) : first + 1;
  }
  for (uint64_t seed = first; seed < end && !testing::Test::HasFailure(); ++seed) {
    const RunCase c = draw(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + c.optimizer + " " + c.method + " set at " +
                 std::to_string(c.set_at));
    const double factor = c.method == "linear" ? kDocuments
                          : c.method == "sqrt" ? std::sqrt(kDocuments)
                                               : 1;
    const RunOutcome scaled =
        run(c, config_of(c, folder.path(), "s" + std::to_string(seed), 1, c.method), c.set_to,
            c.resume_at);
    const RunOutcome configured =
        run(c, config_of(c, folder.path(), "c" + std::to_string(seed), factor, "none"),
            factor * c.set_to, 0);
    EXPECT_EQ(scaled.hash, configured.hash);
    EXPECT_EQ(scaled.rates, configured.rates);
    // A rate that is set applies to every later step, and the callback gets the rate before
    // scaling.
    ASSERT_EQ(scaled.rates.size(), static_cast<size_t>(kSteps));
    const double begin = c.rates.contains("lr") ? c.rates.at("lr") : c.rates.at("muon_lr");
    for (int k = 0; k < kSteps; ++k) {
      const auto rate = [&](int step) {
        return c.set_at > 0 && step > c.set_at ? c.set_to : begin;
      };
      EXPECT_EQ(scaled.rates[static_cast<size_t>(k)], rate(k + 1) * factor) << k;
      const bool just_set = k + 1 == c.set_at;
      EXPECT_EQ(scaled.next[static_cast<size_t>(k)], just_set ? begin : rate(k + 2)) << k;
    }
  }
}

}  // namespace
}  // namespace ds
