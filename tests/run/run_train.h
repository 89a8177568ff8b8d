#pragma once
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "core/base/log.h"
#include "io/file.h"
#include "run/setup.h"
#include "run/train.h"
#include "support/temp_folder.h"
#include "support/train_ranks.h"

namespace ds::test {

inline std::string english(int sentences) {
  static const char* words[] = {"the", "shard", "gathers", "a",     "bucket",
                                "of",  "rows",  "and",     "frees", "it"};
  std::string text;
  for (int i = 0; i < sentences; ++i) {
    for (int w = 0; w < 9; ++w)
      text += std::string(words[(i * 7 + w * w + i / 3) % 10]) + (w == 8 ? ".\n" : " ");
  }
  return text;
}

class RunTrain : public testing::Test {
 protected:
  static TrainOptions quiet(const std::string& resume = "") {
    TrainOptions options;
    options.resume = resume;
    options.quiet = 2;
    return options;
  }

  void SetUp() override {
    text_ = folder_.path() + "/text";
    make_folders(text_);
    write_file_atomic(text_ + "/a.txt", english(200));
    write_file_atomic(text_ + "/b.txt", english(230).substr(900));
  }

  Json config(const std::string& dir, int steps) const {
    Json c = Json::parse(R"({
      "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2, "gradient_clipping": 1.0,
      "optimizer": {"type": "AdamW", "params": {"lr": 0.005}},
      "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 100},
      "model": {"family": "gpt", "layers": 2, "hidden": 32, "heads": 2, "dropout": 0.1},
      "data": {"heldout": 0.1},
      "run": {"sequence": 32, "eval_every": 2, "eval_samples": 8, "save_every": 2, "sample_tokens": 8,
              "seed": 5, "threads": 1}
    })");
    Json patch;
    Json run, data;
    run.set("dir", folder_.path() + "/" + dir);
    run.set("steps", steps);
    data.set("paths", Json::Array{text_});
    patch.set("run", run);
    patch.set("data", data);
    merge_patch(c, patch);
    return c;
  }

  static RunReport train_on(int ranks, const Json& config, const TrainOptions& options) {
    return test::train_on(ranks, config, options);
  }

  static std::string error_of(const Json& config, ds_status status,
                              const TrainOptions& options = quiet()) {
    return test::train_error(config, status, options);
  }

  TempFolder folder_;
  std::string text_;
};

// A log sink that collects the process's lines as long as it lives.
class Warnings {
 public:
  Warnings() {
    set_log_sink([this](LogLevel, std::string_view line) { lines_.emplace_back(line); });
  }
  ~Warnings() {
    flush_log();
    set_log_sink({});
  }
  const std::vector<std::string>& lines() {
    flush_log();
    return lines_;
  }

 private:
  std::vector<std::string> lines_;
};

}  // namespace ds::test
