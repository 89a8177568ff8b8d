// Tests adapters in llama.cpp's form. `./run interop gguf` compares random ones with the files of
// its converter, and loads them in llama.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "checkpoint/adapter_folder.h"
#include "checkpoint/adapter_source.h"
#include "checkpoint/convert.h"
#include "checkpoint/folder_source.h"
#include "core/base/json.h"
#include "io/file.h"
#include "io/gguf.h"
#include "io/gguf_values.h"
#include "io/safetensors.h"
#include "nn/adapter_names.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

const std::string kTestData = std::string(DS_SOURCE_DIR) + "/tests/data/";

std::map<std::string, std::vector<float>> matrices(StateSource& source) {
  std::map<std::string, std::vector<float>> out;
  for (ParamId p : source.names.ids()) {
    std::vector<float>& values = out[source.names[p]];
    values.resize(static_cast<size_t>(source.numel(p)));
    // Odd ranges begin and end within rows.
    for (int64_t at = 0; at < std::ssize(values); at += 7)
      source.read(0, p, at, std::min<int64_t>(7, std::ssize(values) - at), values.data() + at);
  }
  return out;
}

// Writes the matrices of a recorded adapter, without the parameters of its base.
void copy_matrices(const std::string& from, const std::string& to) {
  std::vector<SafetensorEntry> entries = read_safetensors_header(from).entries, kept;
  for (const SafetensorEntry& entry : entries)
    if (entry.name.find(".lora_") != entry.name.npos) kept.push_back(entry);
  const std::vector<SafetensorEntry> old = kept;
  std::string bytes = plan_safetensors(kept, {{"format", "pt"}});
  const std::string data = read_file(from);
  for (const SafetensorEntry& entry : old)
    bytes += data.substr(static_cast<size_t>(entry.begin), static_cast<size_t>(entry.bytes));
  write_file_atomic(to, bytes);
}

class GgufAdapters : public testing::Test {
 protected:
  // Copies the layers of a recorded adapter of PEFT, with changed keys.
  std::string adapter(const std::string& name, const Json& changes = Json(Json::Object{})) {
    const std::string copy = folder_ / (name + "_adapter"), from = kTestData + "adapters/" + name;
    make_folders(copy);
    copy_matrices(from + "/adapter_model.safetensors", copy + "/adapter_model.safetensors");
    Json config = Json::parse(read_file(from + "/adapter_config.json"));
    config.set("bias", "none");
    config.set("modules_to_save", Json());
    for (const auto& [key, value] : changes.object()) config.set(key, value);
    write_file_atomic(copy + "/adapter_config.json", config.dump());
    return copy;
  }

  std::string convert(const std::string& from, const std::string& name, const std::string& base,
                      const std::string& type = "") {
    ConvertRequest request;
    request.like = base;
    request.type = type;
    convert_checkpoint(from, folder_ / name, request);
    return folder_ / name;
  }

  std::string refusal(const std::string& from, const std::string& name, const std::string& base,
                      ds_status status) {
    const std::string message = message_of([&] { convert(from, name, base); }, status);
    EXPECT_FALSE(name_exists(folder_ / name)) << message;
    return message;
  }

  static std::string model(const std::string& name) { return kTestData + "models/" + name; }

  TempFolder folder_;
};

// There and back, A keeps its bits, and B times the factor its value. gpt2 stores its weights
// transposed, llama and gpt_neox reorder rows, and llama has layers of several ranks and factors.
TEST_F(GgufAdapters, FilesComeBackWithTheirMatricesAndFactors) {
  for (const char* name : {"gpt2", "llama", "qwen3", "phi3", "mixtral", "gpt_neox", "gemma2"}) {
    SCOPED_TRACE(name);
    const std::string from = adapter(name);
    const std::string file = convert(from, std::string(name) + ".gguf", model(name));
    const std::string back = convert(file, name, model(name));
    const auto before = open_adapter_source(from, model(name)),
               after = open_adapter_source(back, model(name));
    const auto left = matrices(*before), right = matrices(*after);
    ASSERT_GT(left.size(), 3u);
    ASSERT_EQ(left.size(), right.size());
    for (const auto& [param, values] : left) {
      const std::string module = adapted_module(param);
      const bool is_a = param == adapter_param(module, AdapterPart::a);
      const double old = is_a ? 1 : scale_of(before->keys, module),
                   now = is_a ? 1 : scale_of(after->keys, module);
      const std::vector<float>& other = right.at(param);
      ASSERT_EQ(values.size(), other.size());
      for (size_t i = 0; i < values.size(); ++i)
        ASSERT_NEAR(old * values[i], now * other[i], is_a ? 0 : 1e-6 * std::abs(old * values[i]))
            << param << " " << i;
    }
    EXPECT_EQ(adapter_base(back), model(name));
  }
}

// The names, shapes and keys are those of llama.cpp.
TEST_F(GgufAdapters, FilesHaveTheFormOfLlamaCpp) {
  const GgufHeader header = read_gguf_header(convert(adapter("gpt2"), "a.gguf", model("gpt2")));
  EXPECT_EQ(gguf_text(header, "general.type"), "adapter");
  EXPECT_EQ(gguf_text(header, "adapter.type"), "lora");
  EXPECT_EQ(gguf_text(header, "general.architecture"), "gpt2");
  EXPECT_EQ(gguf_number(header, "adapter.lora.alpha"), 8);
  const GgufTensor *a = header.find("blk.0.attn_qkv.weight.lora_a"),
                   *b = header.find("blk.0.attn_qkv.weight.lora_b");
  ASSERT_TRUE(a && b);
  EXPECT_EQ(a->shape, (std::vector<int64_t>{4, 48}));
  EXPECT_EQ(b->shape, (std::vector<int64_t>{144, 4}));
  EXPECT_EQ(a->type->name, "F32");
}

// The base of an adapter may be a GGUF file, too.
TEST_F(GgufAdapters, TheBaseMayBeAFile) {
  ConvertRequest request;
  const std::string base = folder_ / "base.gguf";
  convert_checkpoint(model("llama"), base, request);
  const std::string from = adapter("llama");
  EXPECT_EQ(read_file(convert(from, "x/a.gguf", base)),
            read_file(convert(from, "y/a.gguf", model("llama"))));
  // A merge with the file has the weights of a merge with the folder.
  for (auto [name, like] : {std::pair{"left", base}, {"right", model("llama")}}) {
    request.form = "merged";
    request.like = like;
    convert_checkpoint(from, folder_ / name, request);
  }
  convert_checkpoint(from, folder_ / "merged.gguf", request);
  const auto left = open_folder_source(folder_ / "left"),
             right = open_folder_source(folder_ / "right"),
             file = open_folder_source(folder_ / "merged.gguf");
  const auto wanted = matrices(*right);
  EXPECT_EQ(matrices(*left), wanted);
  EXPECT_EQ(matrices(*file), wanted);
}

TEST_F(GgufAdapters, WhatTheFormLacksIsRefusedByName) {
  const std::string recorded = kTestData + "adapters/";
  expect_names(refusal(recorded + "phi3", "a.gguf", model("phi3"), DS_ERROR_UNSUPPORTED),
               {"is neither an A nor a B", "modules_to_save", "libds merge"});
  expect_names(refusal(recorded + "gpt2", "a.gguf", model("gpt2"), DS_ERROR_UNSUPPORTED),
               {"c_attn.bias' is neither an A nor a B"});
  expect_names(refusal(adapter("llama"), "a.gguf", "", DS_ERROR_NOT_FOUND),
               {"the base of adapter", "must be a model folder or a GGUF file"});
  expect_names(refusal(adapter("llama"), "a.gguf", model("qwen3"), DS_ERROR_CONFIG), {"shape"});
}

TEST_F(GgufAdapters, WrongFilesAreRefusedByName) {
  const std::string file = convert(adapter("llama"), "a.gguf", model("llama"));
  expect_names(refusal(file, "x", "", DS_ERROR_NOT_FOUND), {"a.gguf' must be a model folder or"});
  expect_names(refusal(file, "x", model("qwen3"), DS_ERROR_UNSUPPORTED),
               {"a.gguf: key 'general.architecture' must be qwen3, got 'llama'"});
  expect_names(message_of([&] { open_folder_source(file); }, DS_ERROR_UNSUPPORTED),
               {"key 'general.type' must be model, got 'adapter'", "--like BASE"});
  std::string bytes = read_file(file);
  for (size_t at; (at = bytes.find("blk.0.attn_q.weight.lora_b")) != bytes.npos;)
    bytes.replace(at, 3, "bad");
  write_file_atomic(file, bytes);
  expect_names(refusal(file, "x", model("llama"), DS_ERROR_CONFIG),
               {"tensor 'bad.0.attn_q.weight.lora_b' belongs to no adapter of a layer of"});
}

}  // namespace
}  // namespace ds::test
