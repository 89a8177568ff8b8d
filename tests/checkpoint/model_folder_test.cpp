#include "checkpoint/model_folder.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "io/file.h"
#include "support/errors.h"
#include "support/hf_golden.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

class ModelFolder : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"config.json", "model.safetensors"}) {
      std::filesystem::copy_file(golden_path("llama") + "/" + name, folder_ / name);
    }
  }
  void change(const std::string& key, const Json& value) {
    Json config = read_model_config(folder_.path());
    config.set(key, value);
    write_file_atomic(folder_ / "config.json", config.dump());
  }
  std::string refusal(ds_status status) {
    return message_of([&] { build_hf_model(folder_.path(), 32, 16); }, status);
  }
  TempFolder folder_;
};

TEST_F(ModelFolder, BuildsWithAndWithoutWeights) {
  size_t count = build_hf_model(folder_.path(), 32, 16).graph.params.size();
  std::filesystem::remove(folder_ / "model.safetensors");
  EXPECT_EQ(build_hf_model(folder_.path(), 32, 16).graph.params.size(), count);
}

TEST_F(ModelFolder, AConfigurationMustFitTheWeights) {
  // The embedding would need 64 GiB: the file's header alone must lead to a refusal.
  change("vocab_size", 1 << 28);
  expect_names(refusal(DS_ERROR_CONFIG), {"model.safetensors", "[160,64]", "[268435456,64]"});
  change("vocab_size", 160);
  change("num_hidden_layers", 3);
  expect_names(refusal(DS_ERROR_CONFIG), {"'model.layers.2.", folder_.path()});
  change("num_hidden_layers", 1);
  // load_weights() only warns of the remaining tensors.
  build_hf_model(folder_.path(), 32, 16);
}

TEST_F(ModelFolder, AHeadThatDiffersFromItsEmbeddingIsNotTied) {
  EXPECT_FALSE(build_hf_model(folder_.path(), 32, 16).untied);
  change("tie_word_embeddings", true);
  HfModel model = build_hf_model(folder_.path(), 32, 16);
  EXPECT_TRUE(model.untied);
  EXPECT_TRUE(model.tied.empty());
}

TEST_F(ModelFolder, FoldersWithoutAModelAreNamed) {
  std::string path = folder_ / "config.json";
  write_file_atomic(path,
                    "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 268435456\n");
  expect_names(refusal(DS_ERROR_CORRUPT), {path, "Git LFS pointer", "256 MiB", "git lfs pull"});
  write_file_atomic(path, "<!DOCTYPE html><html>Access denied</html>");
  expect_names(refusal(DS_ERROR_CORRUPT), {path, "web page (HTML)"});
  write_file_atomic(path, R"({"error":"Repository not found"})");
  expect_names(refusal(DS_ERROR_CORRUPT), {path, "answer of the hub", "Repository not found"});
  std::filesystem::remove(path);
  expect_names(refusal(DS_ERROR_NOT_FOUND), {path, "weights, but config.json is missing"});
  write_file_atomic(folder_ / "adapter_config.json", R"({"base_model_name_or_path": "some/base"})");
  expect_names(refusal(DS_ERROR_NOT_FOUND), {path, "adapter of PEFT", "'some/base'", "merge"});
  expect_names(message_of([] { build_hf_model("owner/name", 32, 16); }, DS_ERROR_NOT_FOUND),
               {"owner/name", "libds downloads nothing", "hf download owner/name"});
}

TEST_F(ModelFolder, ErrorsNameTheFile) {
  std::string path = folder_ / "config.json";
  change("hidden_act", "mish");
  expect_names(refusal(DS_ERROR_UNSUPPORTED), {path, "hidden_act", "mish"});
  change("hidden_act", 7);
  expect_names(refusal(DS_ERROR_INVALID_ARGUMENT), {path, "hidden_act", "7"});
  std::filesystem::remove(folder_ / "model.safetensors");
  change("hidden_act", "silu");
  change("vocab_size", 1 << 28);
  change("hidden_size", 1 << 28);
  expect_names(refusal(DS_ERROR_INVALID_ARGUMENT), {path, "at most", "72057594037927936"});
  change("vocab_size", 160);
  change("hidden_size", 1 << 13);
  change("intermediate_size", 1 << 26);
  change("num_hidden_layers", 64);
  expect_names(refusal(DS_ERROR_INVALID_ARGUMENT), {path, "parameters", "at most"});
  for (const char* text : {"", "{", "[]", "3", "{\"a\": 1, \"a\": 2}"}) {
    write_file_atomic(path, text);
    expect_names(refusal(DS_ERROR_CORRUPT), {path});
  }
  // The file is extended by a hole.
  std::filesystem::resize_file(path, 1LL << 40);
  expect_names(refusal(DS_ERROR_CORRUPT), {path, "1099511627776"});
  std::filesystem::remove(path);
  expect_names(refusal(DS_ERROR_NOT_FOUND), {path});
  std::filesystem::create_symlink("config.json", path);
  expect_names(refusal(DS_ERROR_IO), {path, "symbolic links"});
}

}  // namespace
}  // namespace ds::test
