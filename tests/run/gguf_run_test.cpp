// Tests runs, texts and recorded numbers of models in GGUF files beside those of their folders.
#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/adapter_folder.h"
#include "checkpoint/convert.h"
#include "checkpoint/payload.h"
#include "diagnostics/verify.h"
#include "diagnostics/verify_request.h"
#include "generation/generate_text.h"
#include "generation/generation_request.h"
#include "io/file.h"
#include "monitor/metrics.h"
#include "run/run_train.h"
#include "support/errors.h"
#include "support/ranks.h"
#include "support/train_ranks.h"

namespace ds::test {
namespace {

const std::string kModel = std::string(DS_SOURCE_DIR) + "/tests/data/models/llama";

class RunGguf : public RunTrain {
 protected:
  void SetUp() override {
    RunTrain::SetUp();
    // A copy, whose tokenizer becomes that of the file.
    folder_model_ = folder_ / "model";
    std::filesystem::copy(kModel, folder_model_);
    file_ = folder_ / "model.gguf";
    convert_checkpoint(folder_model_, file_, {});
  }

  Json run_on(const std::string& dir, const std::string& model, const char* adapter = "{}") const {
    Json c = config(dir, 4);
    merge_patch(
        c,
        Json::parse(R"({"model": null, "data": {"tokenizer": "bytes"}, "run": {"sequence": 16}})"));
    c.set("model", Json::Object{{"folder", model}, {"dropout", 0}});
    merge_patch(c, Json::parse(adapter));
    return c;
  }

  std::string folder_model_, file_;
};

// An f32 file has the bits of its folder, and so has the run.
TEST_F(RunGguf, ARunOnAFileEqualsTheRunOnItsFolder) {
  for (int ranks : {1, 3}) {
    const std::string dir = "r" + std::to_string(ranks);
    const RunReport left = train_on(ranks, run_on(dir + "_folder", folder_model_), quiet()),
                    right = train_on(ranks, run_on(dir + "_file", file_), quiet());
    EXPECT_EQ(left.loss, right.loss);
    EXPECT_EQ(payload_hash(left.checkpoint), payload_hash(right.checkpoint));
    // The exported folder is a model to go on with, and becomes a file.
    const RunReport more = train_on(1, run_on(dir + "_more", right.folder + "/model"), quiet());
    EXPECT_LT(more.loss, left.loss + 0.1);
    convert_checkpoint(right.folder + "/model", folder_ / (dir + ".gguf"), {});
    const RunReport again = train_on(1, run_on(dir + "_again", folder_ / (dir + ".gguf")), quiet());
    EXPECT_EQ(again.loss, more.loss);
  }
}

TEST_F(RunGguf, AnAdapterNamesItsFileAndRefusesAnother) {
  const char* adapter = R"({"adapter": {"r": 2, "target_modules": ["q_proj", "down_proj"]}})";
  const RunReport left = train_on(2, run_on("folder", folder_model_, adapter), quiet()),
                  right = train_on(2, run_on("file", file_, adapter), quiet());
  EXPECT_EQ(left.loss, right.loss);
  EXPECT_EQ(adapter_base(right.folder + "/model"), file_);
  const Json longer = Json::parse(R"({"run": {"steps": 6}})");
  EXPECT_EQ(train_on(1, longer, quiet(right.folder)).step, 6);
  std::string bytes = read_file(file_);
  bytes[bytes.size() - 40] ^= 1;
  write_file_atomic(file_, bytes);
  expect_names(
      error_of(Json::parse(R"({"run": {"steps": 8}})"), DS_ERROR_CONFIG, quiet(right.folder)),
      {"the base has changed", "model.gguf"});
}

TEST_F(RunGguf, TextsOfAFileEqualThoseOfItsFolder) {
  const GenerationRequest request = generation_request(
      "", Json::parse(R"({"ids": [1, 2, 3], "tokens": 12, "temperature": 0, "threads": 1})"));
  auto text = [&](const std::string& model) {
    return generate_text(*create_communicator("self", {}), model, request);
  };
  EXPECT_EQ(text(file_), text(folder_model_));
  const GenerationRequest prompt = generation_request("a", Json::parse(R"({"tokens": 2})"));
  expect_names(message_of([&] { generate_text(*create_communicator("self", {}), file_, prompt); },
                          DS_ERROR_NOT_FOUND),
               {"no tokenizer in", "model.gguf': it has no vocabulary; give token ids"});
}

// The numbers beside the file are those of the folder that it was made of.
TEST_F(RunGguf, AFileHasTheRecordedNumbers) {
  for (const char* name : {"golden.json", "golden.safetensors"})
    std::filesystem::copy_file(kModel + "/" + name, folder_ / name);
  VerifyRequest request;
  request.kinds = {"logits", "loss", "grad"};
  run_ranks(1, [&](Communicator& comm) {
    const VerifyReport report = verify_folder(file_, request, comm);
    EXPECT_EQ(report.failed(), 0) << report.text();
  });
}

}  // namespace
}  // namespace ds::test
