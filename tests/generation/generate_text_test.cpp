#include "generation/generate_text.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "data/tokenizer.h"
#include "io/file.h"
#include "run/data.h"
#include "run/train.h"
#include "support/errors.h"
#include "support/ranks.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

namespace fs = std::filesystem;

const std::string kData = std::string(DS_SOURCE_DIR) + "/tests/data/";

GenerationRequest request(const char* options = R"({"ids": [1, 2], "tokens": 2, "threads": 1})") {
  return generation_request("", Json::parse(options));
}

// A copy of the gpt2 reference model that tests may edit. It has 48 positions and 128 tokens.
class GenerateModel : public testing::Test {
 protected:
  void SetUp() override {
    fs::copy(kData + "models/gpt2", folder_.path(), fs::copy_options::recursive);
  }

  void edit(const char* key, const char* value) {
    std::string path = folder_ / "config.json";
    Json config = Json::parse(read_file(path));
    config.set(key, Json::parse(value));
    write_file_atomic(path, config.dump());
  }
  void loop(const char* file) {
    fs::remove(folder_ / file);
    fs::create_symlink(file, folder_ / file);
  }
  std::string continued(const GenerationRequest& asked = request()) {
    return generate_text(*create_communicator("self", {}), folder_.path(), asked);
  }
  std::string refusal(ds_status status, const GenerationRequest& asked = request()) {
    return message_of([&] { continued(asked); }, status);
  }

  TempFolder folder_;
};

TEST_F(GenerateModel, EndTokensAreCheckedByFileAndKey) {
  // In 32 bits, this number would become 55.
  edit("eos_token_id", "4294967351");
  expect_names(refusal(DS_ERROR_CONFIG),
               {"config.json: eos_token_id:", "2147483647", "4294967351"});
  edit("eos_token_id", R"([1, "2"])");
  expect_names(refusal(DS_ERROR_CONFIG),
               {"config.json: eos_token_id[1]:", "an integer", "string \"2\""});
  write_file_atomic(folder_ / "generation_config.json", R"({"eos_token_id": {}})");
  expect_names(refusal(DS_ERROR_CONFIG), {"generation_config.json: eos_token_id:", "object"});
  write_file_atomic(folder_ / "generation_config.json", "[]");
  expect_names(refusal(DS_ERROR_CONFIG),
               {"generation_config.json:", "must be an object, got array"});
}

TEST_F(GenerateModel, PositionsAreCheckedByFileAndKey) {
  for (const char* value : {"48.5", "-5", "\"48\""}) {
    edit("n_positions", value);
    expect_names(refusal(DS_ERROR_INVALID_ARGUMENT), {"config.json: key 'n_positions'", value});
  }
  edit("n_positions", "48");
  EXPECT_FALSE(continued().empty());
}

TEST_F(GenerateModel, ACircularLinkIsNotAMissingFile) {
  loop("generation_config.json");
  expect_names(refusal(DS_ERROR_IO), {"generation_config.json", "Too many levels"});
  fs::remove(folder_ / "generation_config.json");
  GenerationRequest words = generation_request("words", Json::parse(R"({"tokens": 2})"));
  loop("tokenizer.json");
  expect_names(refusal(DS_ERROR_IO, words), {"tokenizer.json", "Too many levels"});
  loop("config.json");
  expect_names(refusal(DS_ERROR_IO), {"config.json", "Too many levels"});
}

TEST_F(GenerateModel, ATokenThatTheModelLacksIsNamed) {
  fs::copy(kData + "tokenizers/qwen2/tokenizer.json", folder_ / "tokenizer.json");
  GenerationRequest words = generation_request("the", Json::parse(R"({"tokens": 2})"));
  expect_names(refusal(DS_ERROR_INVALID_ARGUMENT, words),
               {"0 to 127", folder_.path() + "'", folder_ / "tokenizer.json"});
}

TEST(GenerationRequest, OptionsAreCheckedByKindAndRange) {
  auto refusal = [](const char* options, const char* prompt = "a") {
    return message_of([&] { generation_request(prompt, Json::parse(options)); }, DS_ERROR_CONFIG);
  };
  EXPECT_EQ(refusal("null"), "options: must be an object, got null");
  EXPECT_EQ(refusal("[]"), "options: must be an object, got array");
  EXPECT_EQ(refusal(R"({"threads": "x"})"),
            "options.threads: must be an integer, got string \"x\"");
  EXPECT_EQ(refusal(R"({"threads": 1.5})"), "options.threads: must be an integer, got number 1.5");
  EXPECT_EQ(refusal(R"({"stage": 4})"), "options.stage: must be 0 to 3, got 4");
  EXPECT_EQ(refusal(R"({"dtype": 16})"), "options.dtype: must be a string, got integer 16");
  EXPECT_EQ(refusal(R"({"dtype": "f64"})"),
            "options.dtype: must be one of f32, bf16, f16, got \"f64\"");
  EXPECT_EQ(refusal(R"({"ignore_eos": 1})"),
            "options.ignore_eos: must be true or false, got integer 1");
  EXPECT_EQ(refusal(R"({"ids": 1})"), "options.ids: must be an array, got integer 1");
  EXPECT_EQ(refusal(R"({"ids": [1, -1]})"), "options.ids[1]: must be 0 to 2147483647, got -1");
  EXPECT_EQ(refusal(R"({"token": 1})"), "options.token: unknown key; did you mean tokens?");
  expect_names(refusal(R"({"temperature": -1})"), {"options.temperature: must be 0 to", "got -1"});
}

TEST(Readable, BadBytesAreReplacedAsInAStream) {
  EXPECT_EQ(readable(std::string_view("a\0b\xff\xe2\x82", 6)), "a\nb\xef\xbf\xbd\xef\xbf\xbd");
}

// A run of two steps in folder_/run. train_with() takes the value of data.tokenizer.
class GenerateRun : public testing::Test {
 protected:
  void train_with(const std::string& tokenizer) {
    std::string text = "He said \"no\".\n";
    for (int i = 0; i < 8; ++i) text += text;
    write_file_atomic(folder_ / "text.txt", text);
    Json config = Json::parse(R"({
      "train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
      "model": {"family": "gpt", "layers": 1, "hidden": 16, "heads": 2, "vocab": 1024},
      "run": {"sequence": 16, "steps": 2, "sample_tokens": 0, "threads": 1}})");
    Json run = config.at("run"), data;
    run.set("dir", folder_ / "run");
    data.set("paths", folder_ / "text.txt");
    data.set("tokenizer", tokenizer);
    config.set("run", std::move(run));
    config.set("data", std::move(data));
    TrainOptions options;
    options.quiet = 2;
    train(config, *create_communicator("self", {}), options);
  }
  std::string continued() const {
    return generate_text(
        *create_communicator("self", {}), folder_ / "run",
        generation_request("He said", Json::parse(R"({"tokens": 4, "temperature": 0})")));
  }

  TempFolder folder_;
};

TEST_F(GenerateRun, KeepsItsTokenizer) {
  for (const char* kind : {"gpt2_pair", "qwen2"}) {
    fs::remove_all(folder_ / "run");
    fs::copy(kData + "tokenizers/" + kind, folder_ / "mine", fs::copy_options::recursive);
    train_with(folder_ / "mine");
    std::string text = continued();
    fs::remove_all(folder_ / "mine");
    EXPECT_EQ(continued(), text) << kind;
    TrainOptions options;
    options.quiet = 2;
    options.resume = folder_ / "run";
    Json more = Json::parse(R"({"run": {"steps": 3}})");
    EXPECT_EQ(train(more, *create_communicator("self", {}), options).step, 3);
  }
}

TEST_F(GenerateRun, TokenizerFilesAreCopiedUnderTheirUsualNames) {
  fs::create_directory(folder_ / "mine");
  fs::copy(kData + "tokenizers/qwen2/tokenizer.json", folder_ / "mine/other.json");
  write_file_atomic(folder_ / "mine/special_tokens_map.json", R"({"eos_token": "<|endoftext|>"})");
  train_with(folder_ / "mine/other.json");
  EXPECT_EQ(list_folder(folder_ / "run/data/tokenizer"),
            (std::vector<std::string>{"special_tokens_map.json", "tokenizer.json"}));
}

// A rank that refuses before it has an engine must not leave the others waiting.
TEST_F(GenerateRun, AnErrorOfOneRankIsThrownOnAll) {
  train_with("bytes");
  run_ranks(2, [&](Communicator& comm) {
    GenerationRequest asked = request();
    if (comm.rank() == 1) asked.stage = 7;
    expect_names(message_of([&] { generate_text(comm, folder_ / "run", asked); }, DS_ERROR_CONFIG),
                 {"rank 1: ", "stage", "7"});
  });
}

}  // namespace
}  // namespace ds::test
