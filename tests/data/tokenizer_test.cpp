#include "data/tokenizer.h"

#include <fmt/core.h>
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
#include "support/errors.h"
#include "support/record.h"
#include "support/semantics.h"
#include "support/temp_folder.h"

namespace ds {
namespace {

const std::string folders = test::data_path("tokenizers/");

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

TEST(Tokenizer, BytesAreTokens) {
  auto bytes = open_tokenizer("bytes");
  EXPECT_EQ(bytes->vocab(), 256);
  EXPECT_EQ(bytes->end_of_text(), 0);
  std::string text("a\xff\x01\0b", 5);
  EXPECT_EQ(bytes->encode(text), (std::vector<int32_t>{97, 255, 1, 0, 98}));
  EXPECT_EQ(bytes->decode(bytes->encode(text)), text);
  EXPECT_EQ(bytes->decode(std::vector<int32_t>{97, 256, -1}), "a\xef\xbf\xbd\xef\xbf\xbd");
}

// Returns a text of expected.json, in which U+F0000 represents NUL, because libds's JSON parser
// refuses NUL.
std::string text_of(const Json& json) {
  std::string text = json.string();
  for (size_t at = 0; (at = text.find("\xf3\xb0\x80\x80", at)) != text.npos; ++at)
    text.replace(at, 4, 1, '\0');
  return text;
}

// Compares ids and texts with those of Hugging Face tokenizers and sentencepiece (recorded by
// tools/make_tokenizers.py).
class Family : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(Family, AgreesWithTheOriginal) {
  auto [folder, expected] = GetParam();
  std::unique_ptr<const Tokenizer> tokenizer;
  try {
    tokenizer = open_tokenizer(folders + folder);
  } catch (const Error& error) {
    if (error.status() == DS_ERROR_UNSUPPORTED)
      // This build lacks sentencepiece.
      GTEST_SKIP() << error.what();
    throw;
  }
  const test::Recording all(
      test::data_path(std::string("tokenizers/") + expected + "/expected.json"), {"cases"});
  for (const test::Record& one : all.list("cases")) {
    const std::string text = text_of(one.at("text"));
    std::vector<int32_t> ids = ids_of(one.at("ids"));
    EXPECT_EQ(tokenizer->encode(text, one.at("special").boolean()), ids) << "'" << text << "'";
    EXPECT_EQ(tokenizer->decode(ids, true), text_of(one.at("decoded"))) << "'" << text << "'";
    EXPECT_EQ(tokenizer->decode(ids, false), text_of(one.at("with_special"))) << "'" << text << "'";
    EXPECT_EQ(stream_text(*tokenizer, ids), text_of(one.at("decoded"))) << "'" << text << "'";
    EXPECT_EQ(stream_text(*tokenizer, ids, false), text_of(one.at("with_special")))
        << "'" << text << "'";
    for (int32_t id : ids) ASSERT_LT(id, tokenizer->vocab());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Tokenizers, Family,
    ::testing::Values(std::pair{"gpt2", "gpt2"}, std::pair{"gpt2_pair", "gpt2"},
                      std::pair{"gpt_neox", "gpt_neox"}, std::pair{"llama3", "llama3"},
                      std::pair{"qwen2", "qwen2"}, std::pair{"split_steps", "split_steps"},
                      std::pair{"llama2", "llama2"}, std::pair{"metaspace", "metaspace"},
                      std::pair{"unknown", "unknown"}, std::pair{"bert", "bert"},
                      std::pair{"bert_cased", "bert_cased"}, std::pair{"bert_vocabulary", "bert"},
                      std::pair{"bert_vocabulary_cased", "bert_cased"},
                      std::pair{"word_piece_steps", "word_piece_steps"},
                      std::pair{"spm_bpe", "spm_bpe"}, std::pair{"spm_unigram", "spm_unigram"}),
    [](const auto& info) { return std::string(info.param.first); });

TEST(Tokenizer, NamesItsFrameMaskAndSpecialTokens) {
  for (const char* name : {"bert", "bert_vocabulary"}) {
    auto tokenizer = open_tokenizer(folders + name);
    EXPECT_EQ(tokenizer->frame().before, std::vector<int32_t>{2});
    EXPECT_EQ(tokenizer->frame().after, std::vector<int32_t>{3});
    EXPECT_EQ(tokenizer->mask_token(), 4);
    for (int32_t token = -1; token < 20; ++token) {
      EXPECT_EQ(tokenizer->is_special(token), token >= 0 && token < 5) << token;
    }
  }
  EXPECT_EQ(open_tokenizer(folders + "gpt2")->mask_token(), std::nullopt);
  EXPECT_TRUE(open_tokenizer(folders + "gpt2")->frame().before.empty());
  EXPECT_EQ(open_tokenizer(folders + "llama3")->frame().before.size(), 1u);
  auto bytes = open_tokenizer("bytes");
  EXPECT_TRUE(bytes->is_special(0));
  EXPECT_FALSE(bytes->is_special('a'));
  EXPECT_EQ(bytes->mask_token(), std::nullopt);
}

// A stream that starts after any token of a text continues as in the whole text.
TEST(TextStream, ContinuesAPrompt) {
  for (const char* name : {"llama2", "metaspace", "gpt2"}) {
    auto tokenizer = open_tokenizer(folders + name);
    std::vector<int32_t> ids = tokenizer->encode("The harbour was quiet, and so was Anna.", false);
    std::string whole = tokenizer->decode(ids);
    bool spaced = false;
    for (size_t cut = 1; cut < ids.size(); ++cut) {
      std::span<const int32_t> prompt(ids.data(), cut);
      TextStream stream(*tokenizer);
      stream.begin(prompt);
      std::string text;
      for (size_t i = cut; i < ids.size(); ++i) text += stream.push(ids[i]);
      text += stream.finish();
      EXPECT_EQ(tokenizer->decode(prompt) + text, whole) << name << " at " << cut;
      spaced |= text.starts_with(' ');
    }
    EXPECT_TRUE(spaced) << name;
  }
}

// A valid byte that is followed by an invalid one must not already have been shown as a character.
TEST(TextStream, HoldsBackRunsOfByteFallback) {
  test::TempFolder folder;
  std::ofstream(folder / "tokenizer.json")
      << R"({"decoder":{"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Fuse"}]},)"
      << R"("model":{"type":"BPE","vocab":{"a":0,"<0x41>":1,"<0xFF>":2},"merges":[]}})";
  auto tokenizer = open_tokenizer(folder.path());
  const std::string bad = "\xef\xbf\xbd";
  TextStream stream(*tokenizer);
  EXPECT_EQ(stream.push(0), "a");
  EXPECT_EQ(stream.push(1), "");
  EXPECT_EQ(stream.push(2), "");
  EXPECT_EQ(stream.push(0), bad + bad + "a");
  EXPECT_EQ(stream.push(1), "");
  EXPECT_EQ(stream.finish(), "A");
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{0, 1, 2, 0, 1}), "a" + bad + bad + "aA");
}

// Returns the error of opening a tokenizer.json with this content, or "".
std::string refusal(const test::TempFolder& folder, const std::string& content) {
  std::ofstream(folder / "tokenizer.json", std::ios::binary) << content;
  try {
    open_tokenizer(folder.path());
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Returns a tokenizer.json with the letters a, b and ab, and with one more part or another model.
std::string small(const std::string& part,
                  const std::string& vocabulary = R"({"a":0,"b":1,"ab":2})",
                  const std::string& merges = R"(["a b"])", const std::string& model = "") {
  return "{" + part + (part.empty() ? "" : ",") + R"("model":{"type":"BPE","vocab":)" + vocabulary +
         R"(,"merges":)" + merges + model + "}}";
}

TEST(TokenizerJson, RefusesWithFileAndKey) {
  test::TempFolder folder;
  EXPECT_EQ(refusal(folder, small("")), "");
  const std::pair<std::string, std::string> cases[] = {
      {small(R"("normalizer":{"type":"Nmt"})"), "normalizer.type: \"Nmt\" is not supported"},
      {small(R"("normalizer":{"type":"BertNormalizer","lowercase":1})"),
       "normalizer.lowercase must be a boolean"},
      {small(R"("pre_tokenizer":{"type":"Metaspace","replacement":"__"})"),
       "pre_tokenizer.replacement must be one character, got string \"__\""},
      {small(R"("decoder":{"type":"Metaspace","replacement":""})"),
       "decoder.replacement must be one character, got string \"\""},
      {small(R"("decoder":{"type":"WordPiece","suffix":""})"),
       "decoder.suffix: \"\" is not supported"},
      {R"({"model":{"type":"WordPiece","vocab":{"a":0}}})",
       "model.unk_token: '[UNK]' is not in the vocabulary"},
      {R"({"model":{"type":"WordPiece","vocab":{"[UNK]":0},"more":1}})",
       "model.more: 1 is not supported"},
      {small(R"("pre_tokenizer":{"type":"ByteLevel","more":1})"),
       "pre_tokenizer.more: 1 is not supported"},
      {small("", R"({"a":0,"b":0})", "[]"), "model.vocab: id 0 is given to two pieces"},
      {small("", R"({"a":-1})", "[]"), "model.vocab['a'] must be an id from 0"},
      {small("", R"({"a":99999999999})", "[]"), "model.vocab['a'] must be an id from 0"},
      {small("", R"({"a":0})", R"(["a b"])"), "model.merges[0]: 'b' is not in the vocabulary"},
      {small("", R"({"a":0,"b":1})", R"([["a","b"]])"),
       "model.merges[0]: 'ab' is not in the vocabulary"},
      {small("", R"({"a":0})", R"(["a"])"), "model.merges[0] must be two pieces"},
      {small("", R"({"a":0})", "[]", R"(,"dropout":0.1)"), "model.dropout: 0.1 is not supported"},
      {small("", R"({"a":0})", "[]", R"(,"unk_token":"u")"),
       "model.unk_token: 'u' is not in the vocabulary"},
      {R"({"model":{"type":"Unigram","vocab":[]}})", "model.type: \"Unigram\" is not supported"},
      {"{}", "model is missing"},
      {"[]", "must be an object, got array"},
      {small(R"("added_tokens":[{"id":0,"content":"x"}])"),
       "id 0 is given to 'x' and to 'a' of the model"},
      {small(R"("added_tokens":[{"id":7,"content":"a"}])"), "'a' has id 7, but 0 in the model"},
      {small(R"("added_tokens":[{"id":7,"content":"x"},{"id":7,"content":"y"}])"),
       "id 7 is given to 'x' and to 'y'"},
      {small(
           R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"\\h+"},"behavior":"Isolated"})"),
       "pattern.Regex: '\\h' at byte 0 of the regular expression is not supported"},
      {small(R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"(a"},"behavior":"Isolated"})"),
       "pattern.Regex: regular expression: missing closing parenthesis"},
      {small(R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":")" + std::string(70000, 'a') +
             R"("},"behavior":"Isolated"})"),
       "must be 1 to 65536 bytes"},
      {small(
           R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"a{2}?"},"behavior":"Isolated"})"),
       "pattern.Regex: '{2}?' at byte 1 of the regular expression is not supported"},
      {small(
           R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"\\p{Greeek}"},"behavior":"Isolated"})"),
       "pattern.Regex: regular expression: unknown property"},
      {small(
           R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"\\pL"},"behavior":"Isolated"})"),
       "pattern.Regex: '\\p' at byte 0"},
      {small(R"("post_processor":{"type":"BertProcessing","cls":["c",9],"sep":["s",1]})"),
       "post_processor: token id 9 is not in the vocabulary"},
  };
  for (const auto& [content, message] : cases) {
    std::string got = refusal(folder, content);
    EXPECT_NE(got.find(message), std::string::npos) << "want: " << message << "\ngot: " << got;
    EXPECT_NE(got.find(folder / "tokenizer.json"), std::string::npos) << got;
    EXPECT_EQ(got.find('\n'), std::string::npos) << got;
  }
}

// For every truncation of a file, and for random changes of bytes, opening it gives an error or a
// usable tokenizer.
TEST(TokenizerJson, DamagedFilesAreReadOrRefused) {
  test::TempFolder folder;
  std::string good = read(folders + "unknown/tokenizer.json");
  test::Dice dice(3);
  for (int i = 0; i < 60; ++i) {
    EXPECT_NE(refusal(folder, good.substr(0, static_cast<size_t>(dice.below(
                                                 static_cast<int64_t>(good.size()) - 1)))),
              "");
    std::string bad = good;
    bad[static_cast<size_t>(dice.below(static_cast<int64_t>(bad.size())))] =
        static_cast<char>(dice.below(256));
    if (refusal(folder, bad).empty()) open_tokenizer(folder.path())->encode("harbour \xff 12");
  }
}

// U+30FC, a mark used with two scripts, has Script Common and Script_Extensions Hiragana Katakana.
TEST(TokenizerJson, ScriptsAreNotScriptExtensions) {
  test::TempFolder folder;
  auto ids = [&](const std::string& expression) {
    EXPECT_EQ(
        refusal(
            folder,
            small(R"("pre_tokenizer":{"type":"Split","behavior":"Removed","pattern":{"Regex":")" +
                      expression + R"("}})",
                  "{\"\u30a2\":0,\"\u30fc\":1}", "[]")),
        "");
    return open_tokenizer(folder.path())->encode("\u30a2\u30fc");
  };
  EXPECT_EQ(ids(R"(\\p{Katakana})"), (std::vector<int32_t>{1}));
  EXPECT_EQ(ids(R"(\\P{Katakana})"), (std::vector<int32_t>{0}));
  EXPECT_EQ(ids(R"(\\p{^Katakana})"), (std::vector<int32_t>{0}));
  EXPECT_EQ(ids(R"(\\p{Lm})"), (std::vector<int32_t>{0}));
}

TEST(TokenizerJson, NormalizersMayGrowTextsUpToALimit) {
  test::TempFolder folder;
  std::string step = R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"})", steps = step;
  for (int i = 1; i < 30; ++i) steps += "," + step;
  EXPECT_EQ(
      refusal(folder, small(R"("normalizer":{"type":"Sequence","normalizers":[)" + steps + "]}")),
      "");
  auto tokenizer = open_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->encode("b"), (std::vector<int32_t>{1}));
  try {
    tokenizer->encode("a");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), DS_ERROR_UNSUPPORTED);
    EXPECT_NE(std::string(error.what()).find("normalizer.normalizers[20]"), std::string::npos)
        << error.what();
  }
}

TEST(TokenizerJson, AnExponentialExpressionEndsWithAnError) {
  test::TempFolder folder;
  EXPECT_EQ(
      refusal(
          folder,
          small(
              R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"(a+)+b"},"behavior":"Isolated"})")),
      "");
  auto tokenizer = open_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->encode("aab"), (std::vector<int32_t>{0, 2}));
  EXPECT_THROW(tokenizer->encode(std::string(200, 'a') + "cb"), Error);
}

TEST(TokenizerJson, AcceptsLongWordsAndInvalidBytes) {
  auto tokenizer = open_tokenizer(folders + "llama2");
  std::string text = "x" + std::string(300000, 'a') + "\xf0\x9f\x99\x82";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  EXPECT_EQ(tokenizer->encode("a\xff\xe2\x82"), tokenizer->encode("a\xef\xbf\xbd\xef\xbf\xbd"));
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{100000, -5}), "\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(OpenTokenizer, NamesTheFilesThatItLookedFor) {
  test::TempFolder folder;
  EXPECT_THROW(open_tokenizer("gpt2"), Error);
  try {
    open_tokenizer(folder.path());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), DS_ERROR_NOT_FOUND);
    for (const char* part : {"tokenizer.json", "tokenizer.model", "merges.txt", "token ids"}) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
  EXPECT_EQ(open_tokenizer(folders + "gpt2_pair")->end_of_text(), 0);
}

}  // namespace
}  // namespace ds
