// Tests the effects of the other files in a tokenizer's folder, as Transformers 5.23 reads them;
// `./run interop tokenizers` tests more random cases.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "io/file.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "text/tokenizer.h"
#include "text/tokenizers/range.h"

namespace ds::text {
namespace {

using Ids = std::vector<int32_t>;
const std::string kRecorded = std::string(DS_SOURCE_DIR) + "/tests/data/tokenizers/";

class TokenizerFiles : public ::testing::Test {
 protected:
  void copy(const std::string& from) {
    std::filesystem::copy(kRecorded + from, folder_.path(),
                          std::filesystem::copy_options::recursive |
                              std::filesystem::copy_options::overwrite_existing);
    std::filesystem::remove(folder_ / "expected.json");
  }
  void write(const char* name, const std::string& content) {
    std::ofstream(folder_ / name) << content;
  }
  void remove(const char* name) { std::filesystem::remove(folder_ / name); }
  std::unique_ptr<const Tokenizer> open() { return open_tokenizer(folder_.path()); }
  Ids encode(const std::string& text) { return open()->encode(text, false); }
  std::string error() {
    try {
      open();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  void expect_error(std::initializer_list<const char*> parts) {
    std::string got = error();
    for (const char* part : parts) EXPECT_NE(got.find(part), std::string::npos) << got;
    EXPECT_EQ(got.find('\n'), std::string::npos) << got;
  }
  test::TempFolder folder_;
};

// Returns a byte-level tokenizer.json with a few letters, one added token and further parts.
std::string letters(const std::string& more = "",
                    const std::string& added = R"({"id":4,"content":"<e>","special":true})") {
  return R"({"added_tokens":[)" + added +
         R"(],"model":{"type":"BPE","vocab":{"a":0,"b":1,"c":2,"ab":3},"merges":["a b"]})" + more +
         "}";
}

TEST_F(TokenizerFiles, AddedTokensDecoderAddsTokens) {
  write("tokenizer.json", letters());
  EXPECT_EQ(encode("a<x>b"), Ids{3})
      << "as tokenizers: what is unknown is left out, and a and b merge";
  // Whatever ids the file gives, new tokens get the next free ids in file order.
  write("tokenizer_config.json",
        R"({"added_tokens_decoder": {"90": {"content": "<y>"}, "9": {"content": "<x>",
        "special": true, "normalized": false}, "4": {"content": "<e>", "special": true}}})");
  EXPECT_EQ(encode("a<x>b<y><e>"), (Ids{0, 5, 1, 6, 4}));
  EXPECT_EQ(open()->vocab(), 7);
  EXPECT_EQ(open()->decode(Ids{0, 5, 6}), "a <y>");
  // These flags override those of tokenizer.json; a token of the model keeps its id.
  write("tokenizer_config.json",
        R"({"added_tokens_decoder": {"4": {"content": "<e>", "rstrip": true},
        "8": {"content": "ab", "single_word": true, "normalized": false}}})");
  EXPECT_EQ(encode("<e>  a"), (Ids{4, 0}));
  EXPECT_EQ(encode("cab ab"), (Ids{2, 3, 3}));
  EXPECT_EQ(open()->vocab(), 5);
}

TEST_F(TokenizerFiles, NamedTokensAreAddedInTransformersOrder) {
  write("tokenizer.json", letters());
  write("tokenizer_config.json", R"({"image_token": "<i>", "pad_token": "<p>", "bos_token": "<b>",
        "eos_token": "<e>", "additional_special_tokens": ["<s1>", "<p>", "<s2>"]})");
  EXPECT_EQ(encode("<b><p><i><s1><s2><e>"), (Ids{5, 6, 7, 8, 9, 4}));
  for (int32_t id = 4; id < 10; ++id) EXPECT_TRUE(open()->is_special(id)) << id;
  EXPECT_EQ(open()->end_of_text(), 4);
  // The earlier name is used only if the later one is missing.
  write("tokenizer_config.json",
        R"({"extra_special_tokens": ["<s3>"], "additional_special_tokens": ["<s1>"]})");
  EXPECT_EQ(encode("a<s3>a<s1>"), (Ids{0, 5, 0}));
  write("tokenizer_config.json", R"({"extra_special_tokens": {"audio_token": "<s3>"}})");
  EXPECT_EQ(encode("a<s3>"), (Ids{0, 5}));
  // Tokens may be given with flags, or as null for no token.
  write(
      "tokenizer_config.json",
      R"({"pad_token": null, "eos_token": {"__type": "AddedToken", "content": "<f>", "lstrip": true}})");
  EXPECT_EQ(encode("a  <f>"), (Ids{0, 5}));
}

TEST_F(TokenizerFiles, TheOlderFilesApplyWithoutADecoder) {
  write("tokenizer.json", letters());
  write("tokenizer_config.json", R"({"eos_token": "<e>", "pad_token": "<p>"})");
  write("special_tokens_map.json",
        R"({"eos_token": "<m>", "bos_token": {"content": "<b>", "rstrip": true}})");
  write("added_tokens.json", R"({"<t>": 77, "<m>": 70})");
  EXPECT_EQ(encode("<m><t><b> <p>"), (Ids{5, 6, 7, 8}));
  EXPECT_EQ(open()->end_of_text(), 5);
  EXPECT_TRUE(open()->is_special(5));
  EXPECT_FALSE(open()->is_special(6));
  write("tokenizer_config.json", R"({"eos_token": "<e>", "added_tokens_decoder": {}})");
  EXPECT_EQ(open()->end_of_text(), 4);
  EXPECT_EQ(open()->vocab(), 5);
}

TEST_F(TokenizerFiles, TruncationAndPaddingChangeNoIds) {
  write(
      "tokenizer.json",
      letters(
          R"(,"truncation":{"max_length":1,"direction":"Right"},"padding":{"pad_token":"<pad>"})"));
  EXPECT_EQ(encode("abc<pad>"), (Ids{3, 2, 5}));
  write("tokenizer_config.json", R"({"pad_token": null})");
  EXPECT_EQ(open()->vocab(), 5);
}

// The pad token of `padding` is ordered among the named tokens and has its name in chat templates.
TEST_F(TokenizerFiles, ThePadTokenOfPaddingIsOrderedAmongNamedTokens) {
  write("tokenizer.json", letters(R"(,"padding":{"pad_token":"<pad>"})"));
  write(
      "tokenizer_config.json",
      R"({"bos_token": "<b>", "cls_token": "<c>", "image_token": "<i>", "extra_special_tokens": ["<s>"]})");
  EXPECT_EQ(encode("<b><pad><c><i><s>"), (Ids{5, 6, 7, 8, 9}));
  const Tokenizer::Names names{
      {"bos_token", "<b>"}, {"pad_token", "<pad>"}, {"cls_token", "<c>"}, {"image_token", "<i>"}};
  EXPECT_EQ(open()->names(), names);
}

// The ids are those of Transformers 5.23.
TEST_F(TokenizerFiles, SplitSpecialTokensAreOrdinaryText) {
  const std::string added =
      R"({"id":3,"content":"ab","special":true},{"id":4,"content":"abc","special":true},)"
      R"({"id":2,"content":"c","normalized":false},{"id":5,"content":"ca","normalized":false})";
  write("tokenizer.json", letters("", added));
  for (const char* without : {"{}", R"({"split_special_tokens": false})"}) {
    write("tokenizer_config.json", without);
    EXPECT_EQ(encode("abcab"), (Ids{4, 3})) << without;
  }
  // A special token hides the others that its match overlaps.
  write("tokenizer_config.json", R"({"split_special_tokens": true})");
  EXPECT_EQ(encode("abcab"), (Ids{3, 2, 3}));
  EXPECT_EQ(encode("bcab"), (Ids{1, 5, 1}));
  EXPECT_TRUE(open()->is_special(4));
  // Tokens of the files beside it are split as well if they are special.
  write("tokenizer_config.json",
        R"({"split_special_tokens": true, "eos_token": "ba", "added_tokens_decoder": {
            "8": {"content": "bb", "special": true}}})");
  EXPECT_EQ(encode("babbc"), (Ids{1, 3, 1, 2}));
  EXPECT_EQ(encode("ba"), (Ids{1, 0}));
  EXPECT_EQ(open()->end_of_text(), 7);
  // A name makes a token of the file special, even if the files beside it repeat its flags.
  write("tokenizer_config.json",
        R"({"split_special_tokens": true, "pad_token": "ca", "added_tokens_decoder": {
            "5": {"content": "ca", "special": false, "normalized": false}}})");
  EXPECT_EQ(encode("bca"), (Ids{1, 2, 0}));
  write("tokenizer_config.json", R"({"split_special_tokens": true, "pad_token": "ca"})");
  EXPECT_EQ(encode("bca"), (Ids{1, 2, 0}));
  EXPECT_TRUE(open()->is_special(5));
  // A token that was special stays split, whatever flags the files beside it give.
  write("tokenizer_config.json",
        R"({"split_special_tokens": true, "added_tokens_decoder": {
            "4": {"content": "abc", "special": false}}})");
  EXPECT_EQ(encode("abc"), (Ids{3, 2}));
  EXPECT_FALSE(open()->is_special(4));
}

TEST_F(TokenizerFiles, SplitSpecialTokensMustBeABoolean) {
  copy("gpt2");
  for (const char* value : {"\"true\"", "1", "null"}) {
    write("tokenizer_config.json", std::string(R"({"split_special_tokens": )") + value + "}");
    expect_error({"tokenizer_config.json: split_special_tokens must be true or false, got "});
  }
}

TEST_F(TokenizerFiles, UsualTokensMustBeTexts) {
  copy("gpt2");
  for (const char* file : {"special_tokens_map.json", "tokenizer_config.json"}) {
    write(file, R"({"eos_token": 5})");
    expect_error({file, ": eos_token must be a text or an object with \"content\", got "});
  }
}

TEST_F(TokenizerFiles, NamesMakeTokensSpecial) {
  write("tokenizer.json", letters());
  // Tokens with flags are added before plain ones.
  write(
      "tokenizer_config.json",
      R"({"a_token": "<1>", "b_token": {"__type": "AddedToken", "content": "<2>", "special": true}})");
  EXPECT_EQ(encode("<2><1>"), (Ids{5, 6}));
  // If the later name is an object, the list is taken from the earlier name.
  write(
      "tokenizer_config.json",
      R"({"extra_special_tokens": {"audio_token": "<3>"}, "additional_special_tokens": ["<4>"]})");
  EXPECT_EQ(encode("<3><4>"), (Ids{5, 6}));
  // If a token is given several times with different flags, the last flags apply, at the first
  // position.
  write("tokenizer_config.json",
        R"({"cls_token": {"__type": "AddedToken", "content": "<5>", "rstrip": true, "special": true,
        "normalized": false}, "mask_token": "<5>", "image_token": "<6>"})");
  write("tokenizer.json", letters(R"(,"pre_tokenizer":{"type":"ByteLevel"})",
                                  R"({"id":4,"content":"  ","normalized":true})"));
  EXPECT_EQ(encode("<5>  <6>"), (Ids{5, 4, 6}));
  // The tokens of added_tokens.json have no flags. A name makes a token of the model special, and
  // the token stays normalized.
  write("tokenizer_config.json", R"({"tool_token": "<X>", "eos_token": "<Y>"})");
  write("added_tokens.json", R"({"<X>": 8, "<Y>": 9})");
  write("tokenizer.json", letters(R"(,"normalizer":{"type":"Lowercase"})"));
  EXPECT_EQ(encode("<x><Y><y>"), (Ids{5, 6}));
  EXPECT_TRUE(open()->is_special(5));
  // It also stays normalized if tokenizer_config.json gives the token as an object. However,
  // special_tokens_map.json is read early enough to change that.
  write("tokenizer_config.json", R"({"eos_token": {"__type": "AddedToken", "content": "<Y>"}})");
  write("added_tokens.json", R"({"<Y>": 9})");
  EXPECT_EQ(encode("<y>"), Ids{5});
  EXPECT_TRUE(open()->is_special(5));
  write("special_tokens_map.json", R"({"eos_token": {"content": "<Y>"}})");
  EXPECT_EQ(encode("<Y><y>"), Ids{5});
}

// A token with lstrip does not match spaces that the previous token has already matched.
TEST_F(TokenizerFiles, SpacesAreMatchedOnce) {
  write(
      "tokenizer.json",
      letters(
          "",
          R"({"id":4,"content":"\n\n","lstrip":true,"rstrip":true,"single_word":true,"special":true})"));
  EXPECT_EQ(encode("\n\n\n\n\n\n"), Ids{4});
}

TEST_F(TokenizerFiles, Gpt2sClassHasDefaultTokens) {
  write("tokenizer.json", letters());
  write("tokenizer_config.json", R"({"tokenizer_class": "GPT2TokenizerFast", "bos_token": null})");
  const Tokenizer::Names names{{"eos_token", "<|endoftext|>"}, {"unk_token", "<|endoftext|>"}};
  EXPECT_EQ(open()->names(), names);
  EXPECT_EQ(open()->end_of_text(), 5);
  write("tokenizer.json", letters(R"(,"padding":{"pad_token":"<pad>"})"));
  // The class has no pad token.
  EXPECT_EQ(open()->names(), names);
}

// BertTokenizer reads its template and its unknown token from the other files of the folder.
TEST_F(TokenizerFiles, BertsClassReadsItsTokens) {
  copy("bert");
  Ids plain = open()->encode("the \xf0\x9f\x99\x82");
  ASSERT_GE(plain.size(), 4u);
  EXPECT_EQ(plain.front(), 2);
  EXPECT_EQ(plain.back(), 3);
  for (const char* kind : {"BertTokenizer", "BertTokenizerFast", "PreTrainedTokenizerFast"}) {
    write("tokenizer_config.json",
          fmt::format(R"({{"tokenizer_class": "{}", "cls_token": "[MASK]"}})", kind));
    Ids named = plain;
    if (kind[0] == 'B') named.front() = 4;
    EXPECT_EQ(open()->encode("the \xf0\x9f\x99\x82"), named) << kind;
  }
  write("tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer"})");
  EXPECT_EQ(open()->names().size(), 5u);
  write("tokenizer_config.json", R"({"tokenizer_class": "PreTrainedTokenizerFast"})");
  EXPECT_TRUE(open()->names().empty());
  write("tokenizer_config.json",
        R"({"tokenizer_class": "BertTokenizer", "sep_token": "<end>", "unk_token": "[PAD]"})");
  Ids named = open()->encode("the \xcd\xb8");
  EXPECT_EQ(named.front(), 2);
  EXPECT_EQ(named.back(), open()->vocab() - 1);
  EXPECT_EQ(named[named.size() - 2], 0);
}

// A tokenizer class that is built from the file uses the flags; one that only loads the file
// ignores them.
TEST_F(TokenizerFiles, FlagsOfATokenizerClassApply) {
  copy("bert");
  Ids lower = encode("the"), upper = encode("THE");
  EXPECT_EQ(lower, upper);
  write("tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer", "do_lower_case": false})");
  EXPECT_NE(encode("THE"), lower);
  EXPECT_EQ(encode("the"), lower);
  write("tokenizer_config.json", R"({"do_lower_case": false})");
  EXPECT_EQ(encode("THE"), lower);
  write("tokenizer_config.json",
        R"({"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": false})");
  EXPECT_EQ(encode("THE"), lower);
  write("tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer", "strip_accents": false})");
  EXPECT_NE(encode("th\xc3\xa9"), encode("the"));

  copy("gpt2");
  Ids plain = encode("the"), spaced = encode(" the");
  write("tokenizer_config.json",
        R"({"tokenizer_class": "GPT2TokenizerFast", "add_prefix_space": true})");
  EXPECT_EQ(encode("the"), spaced);
  write("tokenizer_config.json",
        R"({"tokenizer_class": "TokenizersBackend", "add_prefix_space": true})");
  EXPECT_EQ(encode("the"), plain);
  write("tokenizer_config.json",
        R"({"tokenizer_class": "LlamaTokenizer", "add_prefix_space": true})");
  // Transformers loads a byte-level file unchanged.
  EXPECT_EQ(encode("the"), plain);

  for (const char* family : {"llama2", "metaspace"}) {
    copy(family);
    write("tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizer"})");
    Ids before = encode("the");
    write("tokenizer_config.json",
          R"({"tokenizer_class": "LlamaTokenizer", "add_prefix_space": false})");
    EXPECT_NE(encode("the"), before);
    EXPECT_EQ(encode(" the"), before);
  }
}

// Like AutoTokenizer 5.23, libds uses the class that tokenizer_config.json or config.json names, or
// else the class of a known model type. Some model types override the name.
TEST_F(TokenizerFiles, TheClassIsChosenAsByTransformers) {
  copy("gpt2");
  const Ids plain = encode("the"), spaced = encode(" the");
  struct Case {
    const char *named, *config;
    bool flags;
  };
  for (const Case& one : std::initializer_list<Case>{
           {"", "", false},
           {"", "{}", false},
           {"", R"({"model_type": "nosuch"})", false},
           {"", R"({"model_type": "llama"})", false},
           {"", R"({"model_type": "gpt2"})", true},
           {"", R"({"model_type": "opt"})", true},
           {"", R"({"model_type": "gpt2", "tokenizer_class": "PreTrainedTokenizerFast"})", false},
           {"", R"({"tokenizer_class": "GPT2TokenizerFast"})", true},
           {"GPT2Tokenizer", R"({"model_type": "bert"})", true},
           {"GPT2Tokenizer", R"({"model_type": "nosuch"})", true},
           {"GPT2Tokenizer", R"({"model_type": "mistral"})", false},
           {"GPT2Tokenizer", R"({"model_type": "phi3"})", false},
           {"PreTrainedTokenizerFast", R"({"model_type": "gpt2"})", false},
           {"PreTrainedTokenizerFast", R"({"model_type": "qwen2"})", true},
           {"NoSuchTokenizer", "", false},
           {"GemmaTokenizer", "", false},
           {"BartTokenizerFast", "", true}}) {
    SCOPED_TRACE(fmt::format("'{}' {}", one.named, one.config));
    const std::string named = fmt::format(R"(, "tokenizer_class": "{}")", one.named);
    write("tokenizer_config.json",
          R"({"add_prefix_space": true)" + (one.named[0] ? named : "") + "}");
    remove("config.json");
    if (one.config[0]) write("config.json", one.config);
    EXPECT_EQ(encode("the"), one.flags ? spaced : plain);
  }
  write("config.json", "[]");
  expect_error({"config.json must be an object, got array"});
}

// A copy of the files gives the same tokenizer. The hash depends on the class that config.json
// chooses, and not on its other keys.
TEST_F(TokenizerFiles, ARunKeepsTheClass) {
  copy("gpt2");
  write("tokenizer_config.json", R"({"add_prefix_space": true})");
  const std::string without = tokenizer_hash(folder_.path());
  write("config.json", R"({"hidden_size": 8})");
  EXPECT_EQ(tokenizer_hash(folder_.path()), without);
  write("config.json", R"({"model_type": "gpt2", "hidden_size": 8})");
  const std::string of_gpt2 = tokenizer_hash(folder_.path());
  EXPECT_NE(of_gpt2, without);
  write("config.json", R"({"model_type": "gpt2", "hidden_size": 16})");
  EXPECT_EQ(tokenizer_hash(folder_.path()), of_gpt2);
  test::TempFolder kept;
  for (const TokenizerFile& file : tokenizer_files(folder_.path()))
    std::filesystem::copy(file.path, kept / file.name);
  EXPECT_EQ(open_tokenizer(kept.path())->encode("the", false), encode("the"));
  EXPECT_EQ(open_tokenizer(kept.path())->end_of_text(), open()->end_of_text());
  EXPECT_EQ(tokenizer_hash(kept.path()), of_gpt2);
}

// As in `tokenizers`, a token that normalizes to nothing is never found in a text and decodes to
// "".
TEST_F(TokenizerFiles, ATokenThatNormalizesToNothingIsNotFound) {
  write("tokenizer.json",
        letters(R"(,"normalizer":{"type":"Replace","pattern":{"String":"x"},"content":""})",
                R"({"id":4,"content":"x","normalized":true})"));
  EXPECT_EQ(encode("axb"), (Ids{3}));
  EXPECT_EQ(encode("xx"), Ids{});
  EXPECT_EQ(open()->decode(Ids{4}, false), "");
}

// Returns the byte range of the text that each token represents, as "0-3 3-5 ".
std::string sources(const std::string& family, const std::string& text) {
  auto tokenizer = open_tokenizer(kRecorded + family);
  Tokenizer::Traced traced = tokenizer->encode_traced(text);
  EXPECT_EQ(traced.tokens, tokenizer->encode(text, false)) << family << ": " << text;
  std::string out;
  for (Range range : traced.sources) out += fmt::format("{}-{} ", range.begin, range.end);
  return out;
}

TEST_F(TokenizerFiles, TokensAreTracedToCharacters) {
  const std::string face = "\xf0\x9f\x99\x82";
  for (const char* family :
       {"bert", "bert_cased", "word_piece_steps", "gpt2", "gpt_neox", "llama3", "qwen2",
        "split_steps", "llama2", "metaspace", "unknown", "spm_bpe", "spm_unigram"}) {
    if (std::string(family).starts_with("spm")) {
      try {
        open_tokenizer(kRecorded + family);
      } catch (const Error&) {
        // This build lacks sentencepiece.
        continue;
      }
    }
    auto tokenizer = open_tokenizer(kRecorded + family);
    for (std::string text : {"The harbour, 12 lanterns", "  e\xcc\x81\xcc\xa3tude  ",
                             "a\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab b", "<extra>  <mask> ONE1",
                             "\xef\xac\x81ne", ""}) {
      text += face;
      Tokenizer::Traced traced = tokenizer->encode_traced(text);
      EXPECT_EQ(traced.tokens, tokenizer->encode(text, false)) << family << ": " << text;
      ASSERT_EQ(traced.tokens.size(), traced.sources.size());
      size_t last = 0;
      for (Range range : traced.sources) {
        EXPECT_LE(range.begin, range.end);
        EXPECT_LE(range.end, text.size());
        EXPECT_GE(range.end, last) << family << ": " << text;
        for (size_t at : {range.begin, range.end}) {
          EXPECT_TRUE(at == text.size() || (static_cast<unsigned char>(text[at]) & 0xc0) != 0x80)
              << family;
        }
        last = range.end;
      }
      EXPECT_EQ(last, text.size()) << family << ": " << text;
    }
  }
  // Each byte token of a character represents the whole character; spaces that a model drops belong
  // to no token.
  std::string all = sources("llama2", face);
  EXPECT_TRUE(all.ends_with("0-4 0-4 0-4 0-4 ")) << all;
  EXPECT_EQ(sources("bert", "  a  b "), "2-3 5-6 ");
  EXPECT_TRUE(sources("gpt_neox", "<extra>  a").starts_with("0-9 9-10 "));
  // As in `tokenizers`, the characters of a normalization form get the positions of the text's
  // characters in order. If several characters become one, it gets the first of their positions.
  EXPECT_EQ(sources("qwen2", "q\xcc\x81"), "0-1 1-3 1-3 ");
  EXPECT_EQ(sources("qwen2", "e\xcc\x81"), "0-1 ");
  EXPECT_EQ(sources("qwen2", "e\xcc\xa3\xcc\x81"), "0-1 0-1 0-1 3-5 3-5 ");
  EXPECT_EQ(sources("qwen2", "\xc3\xa9\xcc\xa3y"), "0-2 0-2 0-2 2-4 2-4 4-5 ");
  EXPECT_EQ(sources("qwen2",
                    "a\xcc\x95\xcc\x80\xd6\xae\xcc\x81"
                    "b"),
            "0-1 0-1 3-5 3-5 5-7 5-7 7-9 7-9 9-10 ");
  EXPECT_EQ(sources("qwen2", "\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8z"), "0-3 0-3 0-3 9-10 ");
  EXPECT_EQ(sources("split_steps", "\xef\xac\x81\xcc\x81x"), "0-3 3-5 3-5 5-6 ");
  // Characters that a Replace inserts get the position of the last character that it removes.
  EXPECT_EQ(sources("split_steps", "q     x"), "0-1 5-6 5-6 6-7 ");
  EXPECT_EQ(sources("split_steps", "q   \xe3\x80\x80x"), "0-1 4-7 4-7 7-8 ");
}

// As in `tokenizers`, a run of spaces that another token has already matched is still found as a
// token.
TEST_F(TokenizerFiles, SpacesMatchedByAnRstripTokenAreTokensToo) {
  write("tokenizer.json",
        letters("", R"({"id":4,"content":"<r>","rstrip":true},{"id":5,"content":"  "})"));
  EXPECT_EQ(encode("a<r>b"), (Ids{0, 4, 1}));
  EXPECT_EQ(encode("a<r> b"), (Ids{0, 4, 1}));
  EXPECT_EQ(encode("a<r>  b"), (Ids{0, 4, 5, 1}));
  EXPECT_EQ(encode("a<r>    b"), (Ids{0, 4, 5, 5, 1}));
}

TEST_F(TokenizerFiles, AddedTokensOfThePairAreFound) {
  copy("gpt2_pair");
  auto plain = open();
  auto next = static_cast<int32_t>(plain->vocab());
  write("added_tokens.json", R"({"<think>": 9000})");
  EXPECT_EQ(encode("so<think>").back(), next);
  write(
      "tokenizer_config.json",
      R"({"added_tokens_decoder": {"9001": {"content": "<tool>", "special": true}, "9000": {"content": "<think>"}}})");
  auto tokenizer = open();
  EXPECT_EQ(tokenizer->vocab(), next + 2);
  std::vector<int32_t> ids = plain->encode("so"), want = ids;
  want.push_back(next);
  want.push_back(next + 1);
  EXPECT_EQ(tokenizer->encode("so<think><tool>"), want);
  EXPECT_EQ(tokenizer->decode(want), "so<think>");
  write("tokenizer_config.json", R"({"added_tokens_decoder": {"1": {"content": 3}}})");
  expect_error({"tokenizer_config.json", "id 1", "content"});
  write("tokenizer_config.json", "{}");
  write("added_tokens.json", R"({"<think>": -3})");
  expect_error({"added_tokens.json", "-3", "<think>"});
}

TEST_F(TokenizerFiles, BeginTokenMustBeNamed) {
  copy("gpt2_pair");
  write("tokenizer_config.json", R"({"add_bos_token": true})");
  expect_error({"vocab.json", "add_bos_token is true", "no bos_token"});
  auto next = static_cast<int32_t>(open_tokenizer(kRecorded + "gpt2_pair")->vocab());
  write("tokenizer_config.json", R"({"add_bos_token": true, "bos_token": "<s>"})");
  EXPECT_EQ(open()->frame().before, Ids{next});
}

TEST_F(TokenizerFiles, SentencepieceHasOnlyItsPieces) {
  copy("spm_bpe");
  if (error().find("sentencepiece") != std::string::npos) GTEST_SKIP() << error();
  write("tokenizer_config.json", R"({"added_tokens_decoder": {"1": {"content": "<s>"}}})");
  EXPECT_EQ(error(), "");
  remove("tokenizer_config.json");
  write("added_tokens.json", R"({"<think>": 32000})");
  expect_error({"added_tokens.json", "'<think>'", "32000", "tokenizer.model"});
  remove("added_tokens.json");
  write("tokenizer.model", read_file(kRecorded + "spm_bpe/tokenizer.model").substr(0, 1000));
  expect_error({"tokenizer.model: not a whole sentencepiece model"});
}

// The mask token is usually a piece that the user of sentencepiece has defined, which counts as
// text there.
TEST_F(TokenizerFiles, TheMaskTokenOfSentencepieceIsSpecial) {
  copy("spm_unigram");
  if (error().find("sentencepiece") != std::string::npos) GTEST_SKIP() << error();
  EXPECT_FALSE(open()->is_special(4));
  write("tokenizer_config.json", R"({"mask_token": ","})");
  EXPECT_EQ(open()->mask_token(), 4);
  for (int32_t id : {0, 1, 2, 4}) EXPECT_TRUE(open()->is_special(id)) << id;
  for (int32_t id : {-1, 3, 5}) EXPECT_FALSE(open()->is_special(id)) << id;
}

// The other files in the folder of a tokenizer.json determine the mask token, whatever its
// spelling.
TEST(Tokenizer, ReadsTheMaskTokenFromTheOtherFiles) {
  test::TempFolder folder;
  std::filesystem::copy(kRecorded + "bert/tokenizer.json", folder / "tokenizer.json");
  std::ofstream(folder / "tokenizer_config.json") << R"({"mask_token": "[SEP]"})";
  EXPECT_EQ(open_tokenizer(folder.path())->mask_token(), 3);
  std::ofstream(folder / "special_tokens_map.json") << R"({"mask_token": {"content": "[PAD]"}})";
  EXPECT_EQ(open_tokenizer(folder.path())->mask_token(), 0);
}

// A run keeps a copy of added_tokens.json, and the tokens in it that have names are special.
TEST(Tokenizer, AddedTokensOfAVocabularyAreKeptAndSpecial) {
  test::TempFolder folder, copy;
  std::filesystem::copy(kRecorded + "bert_vocabulary/vocab.txt", folder / "vocab.txt");
  int32_t first = static_cast<int32_t>(open_tokenizer(kRecorded + "bert_vocabulary")->vocab());
  std::ofstream(folder / "tokenizer_config.json")
      << R"({"mask_token": "<mask>", "cls_token": "<cls>"})";
  std::ofstream(folder / "added_tokens.json")
      << fmt::format(R"({{"<mask>": {}, "<cls>": {}}})", first, first + 1);
  auto tokenizer = open_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->mask_token(), first);
  EXPECT_TRUE(tokenizer->is_special(first));
  EXPECT_EQ(tokenizer->frame().before, std::vector<int32_t>{first + 1});
  for (const TokenizerFile& file : tokenizer_files(folder.path())) {
    std::filesystem::copy(file.path, copy / file.name);
  }
  const char* text = "one <mask> two";
  EXPECT_EQ(open_tokenizer(copy.path())->encode(text, true), tokenizer->encode(text, true));
  std::ofstream(copy / "vocab.txt", std::ios::app) << "\xff\xfe\n";
  EXPECT_NE(test::message_of([&] { open_tokenizer(copy.path()); }, DS_ERROR_CORRUPT)
                .find("must be UTF-8"),
            std::string::npos);
}

}  // namespace
}  // namespace ds::text
