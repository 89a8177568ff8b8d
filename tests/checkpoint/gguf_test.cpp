// Tests conversions between model folders and GGUF files. llama.gguf and gpt2.gguf were written by
// llama.cpp's converter (tools/make_gguf.py); `./run interop gguf` compares random models.
#include "io/gguf.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "checkpoint/convert.h"
#include "checkpoint/fake_state.h"
#include "checkpoint/folder_source.h"
#include "checkpoint/gguf/model.h"
#include "checkpoint/gguf/tokenizer_import.h"
#include "checkpoint/model_folder.h"
#include "core/base/json.h"
#include "data/tokenizer.h"
#include "io/file.h"
#include "io/gguf_pre_tokenizers.h"
#include "io/safetensors.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

const std::string kTestData = std::string(DS_SOURCE_DIR) + "/tests/data/";

std::string recorded_gguf(const std::string& name) { return kTestData + "gguf/" + name + ".gguf"; }

std::vector<float> values_of(StateSource& source, ParamId param) {
  std::vector<float> out(static_cast<size_t>(source.numel(param)));
  // Odd ranges begin and end within rows and blocks.
  for (int64_t at = 0; at < std::ssize(out); at += 37)
    source.read(0, param, at, std::min<int64_t>(37, std::ssize(out) - at), out.data() + at);
  return out;
}

class GgufModels : public testing::Test {
 protected:
  // Converts, and returns the path of the result in the test's folder.
  std::string convert(const std::string& from, const std::string& name,
                      const std::string& type = "") {
    ConvertRequest request;
    request.type = type;
    convert_checkpoint(from, folder_ / name, request);
    return folder_ / name;
  }

  // Returns a recorded model folder, with options changed that llama.cpp does not have.
  std::string llama_cpp_folder(const std::string& name) {
    const std::string recorded = kTestData + "models/" + name;
    if (name != "gemma2" && name != "gpt_neox") return recorded;
    const std::string copy = folder_ / (name + "_copy");
    std::filesystem::copy(recorded, copy);
    Json config = Json::parse(read_file(copy + "/config.json"));
    if (name == "gemma2") config.set("query_pre_attn_scalar", config.at("head_dim"));
    if (name == "gpt_neox") config.set("rope_parameters", Json::Object{{"rope_type", "default"}});
    write_file_atomic(copy + "/config.json", config.dump());
    return copy;
  }

  std::string refusal(const std::string& from, const std::string& name, ds_status status,
                      const ConvertRequest& request = {}) {
    const std::string message =
        message_of([&] { convert_checkpoint(from, folder_ / name, request); }, status);
    EXPECT_FALSE(name_exists(folder_ / name)) << message;
    return message;
  }

  // Writes recorded_gguf("llama") with another metadata or other tensors.
  std::string changed(const std::function<void(GgufHeader&)>& change) {
    const std::string path = recorded_gguf("llama");
    GgufHeader header = read_gguf_header(path);
    change(header);
    std::vector<GgufTensor> old = header.tensors;
    std::string bytes = plan_gguf(header.metadata, header.tensors);
    const std::string data = read_file(path);
    for (size_t t = 0; t < old.size(); ++t) {
      const GgufTensor& tensor = header.tensors[t];
      bytes.resize(static_cast<size_t>(tensor.begin));
      bytes += data.substr(static_cast<size_t>(old[t].begin), static_cast<size_t>(tensor.bytes));
    }
    write_file_atomic(folder_ / "changed.gguf", bytes);
    return folder_ / "changed.gguf";
  }

  TempFolder folder_;
};

// Saves the masters of a source as a checkpoint.
void write_checkpoint(StateSource& source, const std::string& folder) {
  std::vector<FakeParam> params;
  for (ParamId p : source.names.ids()) params.push_back({source.names[p], source.shapes[p]});
  run_ranks(1, [&](Communicator& comm) {
    FakeState state(comm, false, params, {"master"});
    for (BucketId b : state.layout().buckets.ids()) {
      for (const ParamPlace& place : state.layout().buckets[b].params) {
        const std::vector<float> values = values_of(source, place.param);
        state.write_state(StateKind::master, b, place.begin, std::ssize(values), values.data());
      }
    }
    save_checkpoint(state, folder, {}, {});
  });
}

// Expects that a tokenizer gives the recorded ids to the recorded texts. A tokenizer.model does not
// find control tokens in a text, which a tokenizer.json and llama.cpp do, so texts with '<' are
// left out there. Json spells NUL as U+F0000; texts with it are left out, too.
void expect_recorded_ids(const std::string& folder, const std::string& recorded) {
  const auto tokenizer = open_tokenizer(folder);
  const Json cases =
      Json::parse(read_file(kTestData + "tokenizers/" + recorded + "/expected.json"));
  int checked = 0;
  for (const Json& one : cases.at("cases").array()) {
    std::vector<int32_t> ids;
    for (const Json& id : one.at("ids").array()) ids.push_back(static_cast<int32_t>(id.integer()));
    const std::string& text = one.at("text").string();
    if (text.find("\U000F0000") != text.npos) continue;
    if (recorded == "spm_bpe" && text.find('<') != text.npos) continue;
    EXPECT_EQ(tokenizer->encode(text, one.at("special").boolean()), ids) << text;
    ++checked;
  }
  EXPECT_GT(checked, 20);
}

TEST_F(GgufModels, FilesOfLlamaCppBecomeFoldersWithTheirWeightsAndTokens) {
  const Json sums = Json::parse(read_file(kTestData + "gguf/checksums.json"));
  for (auto [name, tokenizer] : {std::pair{"llama", "spm_bpe"}, {"gpt2", "gpt2"}}) {
    const std::string folder = convert(recorded_gguf(name), name);
    const auto source = open_folder_source(folder);
    ASSERT_EQ(source->names.size(), sums.at(name).object().size());
    for (ParamId p : source->names.ids()) {
      double sum = 0;
      const std::vector<float> values = values_of(*source, p);
      for (size_t i = 0; i < values.size(); ++i) sum += static_cast<double>(i + 1) * values[i];
      EXPECT_NEAR(sum, sums.at(name).at(source->names[p]).number(), 1e-6 * std::abs(sum))
          << source->names[p];
    }
    expect_recorded_ids(folder, tokenizer);
    const Json beside = Json::parse(read_file(folder + "/tokenizer_config.json"));
    expect_names(beside.at("chat_template").string(), {"{% for m in messages %}<{{ m.role }}>"});
  }
  const Json config = Json::parse(read_file(folder_ / "llama/config.json"));
  EXPECT_EQ(config.at("num_key_value_heads").integer(), 2);
  EXPECT_EQ(config.at("rms_norm_eps").number(), 1e-6);
  EXPECT_EQ(config.at("rope_theta").number(), 50000);
  EXPECT_EQ(config.at("rope_scaling").dump(), R"({"rope_type": "linear", "factor": 4.0})");
  EXPECT_EQ(config.at("torch_dtype").string(), "bfloat16");
  EXPECT_EQ(config.at("eos_token_id").integer(), 2);
}

// The names, types and bytes of all tensors, and all keys that both files have, are those of
// llama.cpp's converter.
TEST_F(GgufModels, FoldersBecomeTheFilesOfLlamaCpp) {
  for (const char* name : {"llama", "gpt2"}) {
    const std::string type = std::string(name) == "llama" ? "bf16" : "f16";
    const std::string theirs = recorded_gguf(name);
    const std::string own = convert(convert(theirs, name), std::string(name) + ".gguf", type);
    const GgufHeader left = read_gguf_header(own), right = read_gguf_header(theirs);
    const std::string left_bytes = read_file(own), right_bytes = read_file(theirs);
    ASSERT_EQ(left.tensors.size(), right.tensors.size());
    for (const GgufTensor& want : right.tensors) {
      const GgufTensor* got = left.find(want.name);
      ASSERT_NE(got, nullptr) << want.name;
      EXPECT_EQ(got->shape, want.shape);
      EXPECT_EQ(got->type->name, want.type->name) << want.name;
      EXPECT_EQ(left_bytes.compare(static_cast<size_t>(got->begin), static_cast<size_t>(got->bytes),
                                   right_bytes, static_cast<size_t>(want.begin),
                                   static_cast<size_t>(want.bytes)),
                0)
          << want.name;
    }
    for (const auto& [key, value] : right.metadata) {
      const GgufValue* got = left.value(key);
      // The scores of a tokenizer.json are ranks, so they order pieces like the original ones.
      if (key == "general.name" || key == "general.size_label" || key == "tokenizer.ggml.scores")
        continue;
      ASSERT_NE(got, nullptr) << key;
      EXPECT_EQ(got->kind, value.kind) << key;
      EXPECT_EQ(got->elements, value.elements) << key;
    }
  }
}

TEST_F(GgufModels, EveryFamilyComesBackWithItsValues) {
  for (const char* name : {"gpt2", "llama", "mixtral", "qwen2", "qwen3", "phi3", "phi3_longrope",
                           "gemma2", "gpt_neox"}) {
    SCOPED_TRACE(name);
    const std::string from = llama_cpp_folder(name);
    const std::string file = convert(from, std::string(name) + ".gguf", "f32");
    const auto before = open_folder_source(from), after = open_folder_source(convert(file, name));
    ASSERT_EQ(after->names.size(), before->names.size());
    // Norms of gemma2 are stored plus one, which rounds to multiples of 2^-23.
    const float near = std::string(name) == "gemma2" ? 0x1p-23f : 0;
    for (ParamId p : before->names.ids()) {
      ASSERT_EQ(after->names[p], before->names[p]);
      const std::vector<float> left = values_of(*before, p), right = values_of(*after, p);
      for (size_t i = 0; i < left.size(); ++i)
        ASSERT_NEAR(left[i], right[i], near) << before->names[p] << " " << i;
    }
  }
}

TEST_F(GgufModels, CodesBecomeBf16AndComeNear) {
  const std::string from = kTestData + "models/llama";
  const std::string file = convert(from, "q.gguf", "q8_0"), folder = convert(file, "q");
  const auto before = open_folder_source(from), after = open_folder_source(folder);
  for (ParamId p : before->names.ids()) {
    const std::vector<float> left = values_of(*before, p), right = values_of(*after, p);
    float most = 0;
    for (float value : left) most = std::max(most, std::abs(value));
    // Half a code, and the rounding of bf16.
    for (size_t i = 0; i < left.size(); ++i)
      ASSERT_NEAR(left[i], right[i], most * (0.5f / 127 + 0x1p-8f)) << before->names[p];
  }
  const Json config = Json::parse(read_file(folder + "/config.json"));
  EXPECT_EQ(config.at("torch_dtype").string(), "bfloat16");
}

TEST_F(GgufModels, TokenizersKeepTheirIds) {
  for (const char* name : {"gpt2", "qwen2", "llama3", "llama2", "spm_bpe"}) {
    SCOPED_TRACE(name);
    const std::string from = folder_ / (std::string(name) + "_from");
    std::filesystem::copy(kTestData + "tokenizers/" + name, from,
                          std::filesystem::copy_options::recursive);
    std::filesystem::copy_file(kTestData + "models/llama/model.safetensors",
                               from + "/model.safetensors");
    const GgufVocabulary vocabulary = import_tokenizer(from, 1024);
    EXPECT_EQ(vocabulary.tokens.size(), 1024u);
    EXPECT_EQ(vocabulary.tokens.back(), "[PAD1023]");
    EXPECT_EQ(vocabulary.kinds.back(), TokenKind::unused);
  }
}

TEST_F(GgufModels, WhatLlamaCppLacksIsRefusedByName) {
  const std::string models = kTestData + "models/";
  expect_names(refusal(models + "opt", "a.gguf", DS_ERROR_UNSUPPORTED),
               {"model_type mixtral, mistral, llama", "got 'opt'"});
  expect_names(refusal(models + "llama_dynamic", "a.gguf", DS_ERROR_UNSUPPORTED),
               {"architecture llama has no rope_type 'dynamic'"});
  expect_names(refusal(models + "mistral", "a.gguf", DS_ERROR_UNSUPPORTED),
               {"key 'rope_scaling.mscale' cannot be expressed in a GGUF file, got 0.7"});
  expect_names(refusal(models + "gemma2", "a.gguf", DS_ERROR_UNSUPPORTED),
               {"key 'query_pre_attn_scalar' must be 16 in a GGUF file, got 20"});
  const std::string tokens = kTestData + "tokenizers/";
  expect_names(
      message_of([&] { import_tokenizer(tokens + "spm_unigram", 2000); }, DS_ERROR_UNSUPPORTED),
      {"tokenizer.model: a GGUF file holds sentencepiece models of type BPE"});
  expect_names(
      message_of([&] { import_tokenizer(tokens + "gpt_neox", 2000); }, DS_ERROR_UNSUPPORTED),
      {"gpt-2, llama-bpe", "add_prefix_space"});
  expect_names(message_of([&] { import_tokenizer(tokens + "gpt2", 100); }, DS_ERROR_CONFIG),
               {"tokenizers/gpt2: token '", "but vocab_size of its config.json is 100"});
  write_file_atomic(folder_ / "tokenizer.json", R"({"model": {"type": "BPE"}})");
  expect_names(message_of([&] { import_tokenizer(folder_.path(), 100); }, DS_ERROR_UNSUPPORTED),
               {folder_.path()});
  expect_names(message_of([&] { pre_tokenizer_of("tekken"); }, DS_ERROR_UNSUPPORTED),
               {"must be one of gpt-2, llama-bpe, qwen2", "got 'tekken'"});
}

TEST_F(GgufModels, WrongModelsAreRefusedByName) {
  auto set = [](GgufHeader& header, const std::string& key, GgufValue value) {
    for (auto& [known, old] : header.metadata) {
      if (known == key) old = value;
    }
  };
  auto drop = [](GgufHeader& header, const std::string& key) {
    std::erase_if(header.metadata, [&](const auto& pair) { return pair.first == key; });
  };
  constexpr const char* kEps = "llama.attention.layer_norm_rms_epsilon";
  struct Case {
    std::function<void(GgufHeader&)> change;
    ds_status status;
    const char* what;
  };
  const Case cases[] = {
      {[&](auto& h) { set(h, "general.architecture", GgufValue::text("mamba")); },
       DS_ERROR_UNSUPPORTED, "general.architecture must be llama, qwen2"},
      {[&](auto& h) { drop(h, "general.architecture"); }, DS_ERROR_CORRUPT,
       "key 'general.architecture' must be a text"},
      {[&](auto& h) { set(h, "tokenizer.ggml.model", GgufValue::text("t5")); },
       DS_ERROR_UNSUPPORTED, "must be gpt2, llama or none, got 't5'"},
      {[&](auto& h) { drop(h, "llama.embedding_length"); }, DS_ERROR_CORRUPT,
       "key 'llama.embedding_length' is missing"},
      {[&](auto& h) { set(h, "llama.block_count", GgufValue::u32(2)); }, DS_ERROR_CONFIG,
       "tensor 'blk.1.attn_norm.weight' of parameter 'model.layers.1.input_layernorm.weight'"},
      {[&](auto& h) { set(h, "llama.block_count", GgufValue::text("2")); }, DS_ERROR_CORRUPT,
       "key 'llama.block_count' must be an integer"},
      {[&](auto& h) { set(h, "llama.embedding_length", GgufValue::u32(0)); }, DS_ERROR_CORRUPT,
       "must be from 1 to 268435456, got 0"},
      {[&](auto& h) { set(h, "llama.feed_forward_length", GgufValue::u32(25)); }, DS_ERROR_CONFIG,
       "tensor 'blk.0.ffn_gate.weight' has shape [24,16]"},
      {[&](auto& h) {
         std::ranges::find(h.tensors, "blk.0.attn_q.weight", &GgufTensor::name)->name = "x";
       },
       DS_ERROR_CONFIG, "tensor 'blk.0.attn_q.weight' of parameter"},
      {[&](auto& h) { set(h, "tokenizer.ggml.bos_token_id", GgufValue::u32(9999)); },
       DS_ERROR_CORRUPT, "must be from 0 to 801, got 9999"},
      {[&](auto& h) {
         set(h, "tokenizer.ggml.token_type", {GgufKind::i32, true, std::vector<int64_t>{1}});
       },
       DS_ERROR_CORRUPT, "must have 802 elements, one for each token, got 1"},
      {[&](auto& h) { set(h, kEps, GgufValue::f32(INFINITY)); }, DS_ERROR_CORRUPT,
       "layer_norm_rms_epsilon' must be a positive number, got inf"},
      {[&](auto& h) { set(h, kEps, GgufValue::f32(NAN)); }, DS_ERROR_CORRUPT,
       "layer_norm_rms_epsilon' must be a positive number, got nan"},
      {[&](auto& h) { set(h, "llama.rope.freq_base", GgufValue::f32(0)); }, DS_ERROR_CORRUPT,
       "rope.freq_base' must be a positive number, got 0"},
      {[&](auto& h) { set(h, "llama.rope.scaling.factor", GgufValue::f32(-4)); }, DS_ERROR_CORRUPT,
       "rope.scaling.factor' must be a positive number, got -4"},
      {[&](auto& h) { set(h, "llama.rope.dimension_count", GgufValue::u32(2)); },
       DS_ERROR_UNSUPPORTED, "rope.dimension_count' must be 4, the width of a head, got 2"},
      {[&](auto& h) { set(h, "llama.attention.value_length", GgufValue::u32(8)); },
       DS_ERROR_UNSUPPORTED, "attention.value_length' must be 4, the width of a head, got 8"},
      {[&](auto& h) { h.metadata.emplace_back("llama.attention.causal", GgufValue::flag(false)); },
       DS_ERROR_UNSUPPORTED, "key 'llama.attention.causal' must be true, got false"},
      {[&](auto& h) {
         h.metadata.emplace_back("llama.rope.scaling.attn_factor", GgufValue::f32(2));
       },
       DS_ERROR_UNSUPPORTED, "rope.scaling.attn_factor' must be 1 without yarn, got 2"},
      {[&](auto& h) { h.metadata.emplace_back("split.count", GgufValue::u32(3)); },
       DS_ERROR_UNSUPPORTED, "key 'split.count' must be 1, got 3: join the parts"},
      {[&](auto& h) { set(h, "general.type", GgufValue::text("mmproj")); }, DS_ERROR_UNSUPPORTED,
       "key 'general.type' must be model, got 'mmproj'"}};
  for (const Case& one : cases)
    expect_names(refusal(changed(one.change), "x", one.status), {"changed.gguf", one.what});
}

// In llama.cpp a factor without a type is linear, and rope.scale_linear is its older name.
TEST_F(GgufModels, AFactorWithoutATypeIsLinear) {
  for (const char* name : {"llama.rope.scaling.factor", "llama.rope.scale_linear"}) {
    const std::string path = changed([&](GgufHeader& header) {
      std::erase_if(header.metadata,
                    [](const auto& pair) { return pair.first.starts_with("llama.rope.scaling."); });
      header.metadata.emplace_back(name, GgufValue::f32(2.5));
    });
    const Json scaling = read_gguf_model(path).config.at("rope_scaling");
    EXPECT_EQ(scaling.at("rope_type").string(), "linear");
    EXPECT_EQ(scaling.at("factor").number(), 2.5);
  }
}

TEST_F(GgufModels, VocabulariesBesideMergesKeepTheirTokens) {
  const std::string folder = kTestData + "tokenizers/gpt2_pair";
  const Json vocabulary = Json::parse(read_file(folder + "/vocab.json"));
  const GgufVocabulary got =
      import_tokenizer(folder, static_cast<int64_t>(vocabulary.object().size()) + 8);
  for (const auto& [token, id] : vocabulary.object())
    EXPECT_EQ(got.tokens[static_cast<size_t>(id.integer())], token);
}

TEST_F(GgufModels, StepsBesidePiecesAreRefusedByName) {
  const std::string text = read_file(kTestData + "tokenizers/llama2/tokenizer.json");
  Json tokenizer = Json::parse(text);
  tokenizer.set("pre_tokenizer", Json::parse(R"({"type": "Metaspace", "replacement": "\u2581",
      "prepend_scheme": "always", "split": false})"));
  tokenizer.set("normalizer", Json());
  write_file_atomic(folder_ / "tokenizer.json", tokenizer.dump());
  EXPECT_EQ(import_tokenizer(folder_.path(), 1024).add_space, true);
  tokenizer.set("normalizer", Json::parse(R"({"type": "Sequence", "normalizers": [
      {"type": "Lowercase"}]})"));
  write_file_atomic(folder_ / "tokenizer.json", tokenizer.dump());
  expect_names(message_of([&] { import_tokenizer(folder_.path(), 1024); }, DS_ERROR_UNSUPPORTED),
               {folder_.path(), "normalizer 'Lowercase' of its tokenizer cannot be expressed"});
}

// A refusal of the tokenizer leaves no weights, either.
TEST_F(GgufModels, UnknownPreTokenizersAreRefusedByName) {
  const std::string path = changed([](GgufHeader& header) {
    for (auto& [key, value] : header.metadata) {
      if (key == "tokenizer.ggml.model") value = GgufValue::text("gpt2");
      if (key == "tokenizer.ggml.pre") value = GgufValue::text("tekken");
    }
  });
  expect_names(refusal(path, "x", DS_ERROR_UNSUPPORTED),
               {"changed.gguf: ", "must be one of gpt-2", "got 'tekken'"});
  expect_names(message_of([&] { open_tokenizer(path); }, DS_ERROR_UNSUPPORTED),
               {"changed.gguf: ", "got 'tekken'"});
}

TEST_F(GgufModels, TokensWithoutARowAreRefusedByName) {
  const std::string path = changed([](GgufHeader& header) {
    for (auto& [key, value] : header.metadata) {
      if (key == "tokenizer.ggml.tokens")
        std::get<std::vector<std::string>>(value.elements).push_back("<new>");
      if (key == "tokenizer.ggml.token_type")
        std::get<std::vector<int64_t>>(value.elements).push_back(4);
      if (key == "tokenizer.ggml.scores")
        std::get<std::vector<double>>(value.elements).push_back(0);
    }
  });
  expect_names(refusal(path, "x", DS_ERROR_CONFIG),
               {"changed.gguf: key 'tokenizer.ggml.tokens' has 803 tokens", "has 802 rows"});
}

TEST_F(GgufModels, ExtraTensorsAreRefusedByName) {
  const std::string path = changed([](GgufHeader& header) {
    GgufTensor extra = header.tensors[0];
    extra.name = "blk.0.ssm_a";
    header.tensors.push_back(extra);
  });
  expect_names(refusal(path, "x", DS_ERROR_UNSUPPORTED),
               {"tensor 'blk.0.ssm_a' has no parameter in a llama model"});
}

// The file and the folder that is made of it are the same model, read by the same code.
TEST_F(GgufModels, AFileIsReadLikeItsFolder) {
  for (const char* name : {"llama", "gpt2"}) {
    const std::string file = recorded_gguf(name), folder = convert(file, name);
    const auto left = open_folder_source(file), right = open_folder_source(folder);
    ASSERT_EQ(left->names, right->names);
    for (ParamId p : left->names.ids()) EXPECT_EQ(values_of(*left, p), values_of(*right, p));
    const auto own = open_tokenizer(file), theirs = open_tokenizer(folder);
    EXPECT_EQ(own->encode("two texts\n 42"), theirs->encode("two texts\n 42"));
    EXPECT_EQ(own->name(), file + "/tokenizer.json");
    EXPECT_EQ(tokenizer_hash(file), tokenizer_hash(folder));
    Json written = read_model_config(folder);
    std::erase_if(written.object(), [](const auto& m) { return m.first == "torch_dtype"; });
    EXPECT_EQ(read_model_config(file).dump(), written.dump());
  }
}

// Without a type the new file has what the old one has.
TEST_F(GgufModels, AFileBecomesAnother) {
  const std::string file = recorded_gguf("llama");
  const std::string again = convert(file, "again.gguf"), large = convert(file, "large.gguf", "f32");
  const auto before = open_folder_source(file), after = open_folder_source(again);
  for (ParamId p : before->names.ids()) EXPECT_EQ(values_of(*before, p), values_of(*after, p));
  EXPECT_GT(std::filesystem::file_size(large), std::filesystem::file_size(again));
  EXPECT_EQ(open_tokenizer(again)->encode("two texts"), open_tokenizer(file)->encode("two texts"));
}

TEST_F(GgufModels, ScalesThatAreNotFiniteAreRefusedByName) {
  const std::string file = convert(kTestData + "models/llama", "q.gguf", "q8_0");
  const GgufHeader header = read_gguf_header(file);
  const GgufTensor* tensor = header.find("blk.0.attn_v.weight");
  std::string bytes = read_file(file);
  // The scale of the second block is the f16 number infinity.
  bytes[static_cast<size_t>(tensor->begin) + 34] = 0;
  bytes[static_cast<size_t>(tensor->begin) + 35] = 0x7c;
  write_file_atomic(file, bytes);
  expect_names(message_of([&] { convert(file, "folder"); }, DS_ERROR_CORRUPT),
               {"q.gguf", "Q8_0: tensor 'blk.0.attn_v.weight': element", "because the scale"});
}

// A value beyond the range of a type would become an infinite one.
TEST_F(GgufModels, ValuesBeyondATypeAreRefusedByName) {
  const std::string from = folder_ / "large";
  std::filesystem::copy(kTestData + "models/llama", from);
  std::string bytes = read_file(from + "/model.safetensors");
  const SafetensorHeader header = read_safetensors_header(from + "/model.safetensors");
  const SafetensorEntry* entry = header.find("model.layers.0.self_attn.v_proj.weight");
  const float large = 1e7f;
  std::memcpy(bytes.data() + entry->begin, &large, sizeof large);
  write_file_atomic(from + "/model.safetensors", bytes);
  for (const char* type : {"f16", "q8_0"})
    expect_names(message_of([&] { convert(from, "x.gguf", type); }, DS_ERROR_CONFIG),
                 {"element 0 of tensor 'blk.0.attn_v.weight' is 10000000, which",
                  "cannot hold: give the type bf16 or f32"});
  EXPECT_FALSE(name_exists(folder_ / "x.gguf"));
  convert(from, "x.gguf", "bf16");
}

// A conversion that was killed leaves temporary files, and they are no reason to refuse another.
TEST_F(GgufModels, TemporaryFilesDoNotBlockAConversion) {
  const std::string target = folder_ / "target", file = recorded_gguf("llama");
  make_folders(target);
  const std::string left = fresh_name(target + "/model.safetensors");
  write_file_atomic(left, "half");
  convert(file, "target");
  EXPECT_FALSE(name_exists(left));
  EXPECT_TRUE(name_exists(target + "/config.json"));
  expect_names(message_of([&] { convert(file, "target"); }, DS_ERROR_INVALID_ARGUMENT),
               {"target' must be empty: it has 4 files"});
}

// A checkpoint has no configuration, so the model folder is named beside it, and must be its own.
TEST_F(GgufModels, CheckpointsNeedTheirModelFolder) {
  const std::string model = kTestData + "models/llama", checkpoint = folder_ / "checkpoint";
  const auto source = open_folder_source(model);
  write_checkpoint(*source, checkpoint);
  expect_names(refusal(checkpoint, "a.gguf", DS_ERROR_INVALID_ARGUMENT),
               {"like: the model folder of", "is needed for a GGUF file, got none"});
  ConvertRequest request;
  request.like = kTestData + "models/qwen2";
  expect_names(refusal(checkpoint, "a.gguf", DS_ERROR_CONFIG, request), {"parameter 'model."});
  request.like = model;
  convert_checkpoint(checkpoint, folder_ / "a.gguf", request);
  EXPECT_EQ(read_file(folder_ / "a.gguf"), read_file(convert(model, "llama.gguf")));
}

TEST_F(GgufModels, WrongRequestsAreRefused) {
  const std::string file = recorded_gguf("llama"), model = kTestData + "models/llama";
  auto form = [](const char* to, const char* type = "") {
    ConvertRequest request;
    request.form = to;
    request.type = type;
    return request;
  };
  for (const char* to : {"libds", "universal", "fp32"})
    expect_names(refusal(file, "x", DS_ERROR_INVALID_ARGUMENT, form(to)),
                 {"is a GGUF file, which becomes a model folder", to});
  expect_names(refusal(model, "x", DS_ERROR_INVALID_ARGUMENT, form("model")),
               {"is not a GGUF file"});
  expect_names(refusal(file, "x", DS_ERROR_INVALID_ARGUMENT, form("model", "q8_0")),
               {"type of a model folder must be f32, f16 or bf16, got 'q8_0'"});
  expect_names(refusal(model, "x", DS_ERROR_INVALID_ARGUMENT, form("fp32", "f16")),
               {"type is an option of the forms model and gguf, got 'f16' for fp32"});
  expect_names(refusal(model, "x", DS_ERROR_INVALID_ARGUMENT, form("gguf", "q4_0")),
               {"type must be f32, f16, bf16 or q8_0, got 'q4_0'"});
  const std::string taken = convert(model, "taken.gguf");
  expect_names(message_of([&] { convert_checkpoint(model, taken, {}); }, DS_ERROR_INVALID_ARGUMENT),
               {"taken.gguf' must not exist"});
}

}  // namespace
}  // namespace ds::test
