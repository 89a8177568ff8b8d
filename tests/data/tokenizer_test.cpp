#include "data/tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/utf8.h"
#include "support/dice.h"
#include "support/temp_folder.h"

namespace ds {
namespace {

const std::string folders = std::string(DS_SOURCE_DIR) + "/tests/data/tokenizers/";

std::string read(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

std::vector<int32_t> ids_of(const Json& json) {
  std::vector<int32_t> ids;
  for (const Json& id : json.array()) ids.push_back(static_cast<int32_t>(id.integer()));
  return ids;
}

std::string stream_text(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                        bool skip_special = true) {
  TextStream stream(tokenizer, skip_special);
  std::string text;
  for (int32_t id : ids) {
    std::string part = stream.push(id);
    EXPECT_TRUE(is_utf8(part));
    text += part;
  }
  return text + stream.finish();
}

TEST(Tokenizer, Bytes) {
  auto bytes = open_tokenizer("bytes");
  EXPECT_EQ(bytes->vocab(), 256);
  EXPECT_EQ(bytes->end_of_text(), 0);
  std::string text("a\xff\x01\0b", 5);
  EXPECT_EQ(bytes->encode(text), (std::vector<int32_t>{97, 255, 1, 0, 98}));
  EXPECT_EQ(bytes->decode(bytes->encode(text)), text);
  EXPECT_EQ(bytes->decode(std::vector<int32_t>{97, 256, -1}), "a\xef\xbf\xbd\xef\xbf\xbd");
}

// Ids and texts are those of Hugging Face tokenizers and sentencepiece (tools/make_tokenizers.py).
class Family : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(Family, AgreesWithTheOriginal) {
  auto [folder, expected] = GetParam();
  std::unique_ptr<const Tokenizer> tokenizer;
  try {
    tokenizer = open_tokenizer(folders + folder);
  } catch (const Error& error) {
    if (error.status() == DS_ERROR_UNSUPPORTED) GTEST_SKIP() << error.what();  // built without sentencepiece
    throw;
  }
  Json json = Json::parse(read(folders + expected + "/expected.json"));
  size_t cases = 0;
  for (const Json& one : json.at("cases").array()) {
    const std::string& text = one.at("text").string();
    std::vector<int32_t> ids = ids_of(one.at("ids"));
    EXPECT_EQ(tokenizer->encode(text, one.at("special").boolean()), ids) << "'" << text << "'";
    EXPECT_EQ(tokenizer->decode(ids, true), one.at("decoded").string()) << "'" << text << "'";
    EXPECT_EQ(tokenizer->decode(ids, false), one.at("with_special").string()) << "'" << text << "'";
    EXPECT_EQ(stream_text(*tokenizer, ids), one.at("decoded").string()) << "'" << text << "'";
    EXPECT_EQ(stream_text(*tokenizer, ids, false), one.at("with_special").string()) << "'" << text << "'";
    for (int32_t id : ids) ASSERT_LT(id, tokenizer->vocab());
    ++cases;
  }
  EXPECT_GE(cases, 130u);
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Family,
                         ::testing::Values(std::pair{"gpt2", "gpt2"}, std::pair{"gpt2_pair", "gpt2"},
                                           std::pair{"gpt_neox", "gpt_neox"}, std::pair{"llama3", "llama3"},
                                           std::pair{"qwen2", "qwen2"},
                                           std::pair{"split_steps", "split_steps"},
                                           std::pair{"llama2", "llama2"}, std::pair{"metaspace", "metaspace"},
                                           std::pair{"unknown", "unknown"}, std::pair{"spm_bpe", "spm_bpe"},
                                           std::pair{"spm_unigram", "spm_unigram"}),
                         [](const auto& info) { return std::string(info.param.first); });

}  // namespace
}  // namespace ds
