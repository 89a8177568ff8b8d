#include "data/tokenizer.h"

#include <filesystem>

#include "attempt.h"
#include "support/mutate.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

const std::string kFolders = std::string(DS_SOURCE_DIR) + "/tests/data/tokenizers/";

// Checks promises that every tokenizer must keep, whatever its file contains.
void use(const std::string& name) {
  auto tokenizer = open_tokenizer(name);
  for (const char* text :
       {"", "a", "Hello, world 12345!\n\tif (x) {}", "\u00fc\u4e16\u754c \xf0\x9f\x99\x82",
        "<s></s><|endoftext|>", "\xff\xc3"}) {
    std::vector<int32_t> ids = tokenizer->encode(text);
    for (int32_t id : ids) {
      EXPECT_GE(id, 0);
      EXPECT_LT(id, tokenizer->vocab());
    }
    EXPECT_TRUE(is_utf8(tokenizer->decode(ids)));
    EXPECT_TRUE(is_utf8(tokenizer->decode(ids, false)));
  }
}

// A text may grow when its characters are replaced, and each new character has a position.
constexpr size_t kMostBytes = size_t{32} << 20;

class FuzzTokenizer : public testing::TestWithParam<const char*> {};

TEST_P(FuzzTokenizer, DamagedDocumentsAreReadOrRefused) {
  TempFolder folder;
  std::string path = folder / "tokenizer.json",
              text = get_file(kFolders + GetParam() + "/tokenizer.json");
  Json document = Json::parse(text);
  Attempts attempts(kMostBytes);
  for (uint32_t i = 0; i < draws(250); ++i) {
    Dice dice = dice_of(61, i);
    SCOPED_TRACE(i);
    put_file(path, dice.one_in(3) ? mutate_bytes(text, dice) : mutate_json(document, dice).dump());
    attempts.run([&] { use(path); });
  }
  EXPECT_GT(attempts.refused, static_cast<int>(draws(50)));
}

// Most of the document is its vocabulary, so this test edits the other parts.
TEST_P(FuzzTokenizer, DamagedPartsAreReadOrRefused) {
  TempFolder folder;
  std::string path = folder / "tokenizer.json";
  Json document = Json::parse(get_file(kFolders + GetParam() + "/tokenizer.json"));
  Attempts attempts(kMostBytes);
  for (uint32_t i = 0; i < draws(500); ++i) {
    Dice dice = dice_of(62, i);
    SCOPED_TRACE(i);
    Json damaged = document;
    for (auto& [name, part] : damaged.object()) {
      if (name != "model" && dice.one_in(3)) part = mutate_json(part, dice);
    }
    put_file(path, damaged.dump());
    attempts.run([&] { use(path); });
  }
  EXPECT_GT(attempts.loaded, static_cast<int>(draws(10)));
  EXPECT_GT(attempts.refused, static_cast<int>(draws(50)));
}

INSTANTIATE_TEST_SUITE_P(All, FuzzTokenizer,
                         testing::Values("gpt2", "llama2", "llama3", "metaspace", "split_steps",
                                         "unknown", "bert"));

// Damages the files from which libds builds a tokenizer.
void damage_files(const std::string& from, const std::vector<std::string>& names) {
  TempFolder folder;
  std::vector<std::string> good;
  for (const std::string& name : names) {
    good.push_back(get_file(kFolders + from + "/" + name));
    put_file(folder / name, good.back());
  }
  Attempts attempts;
  for (uint32_t i = 0; i < draws(600); ++i) {
    Dice dice = dice_of(63, i);
    SCOPED_TRACE(i);
    auto which = static_cast<size_t>(dice.below(static_cast<int64_t>(names.size())));
    put_file(folder / names[which], mutate_bytes(good[which], dice));
    attempts.run([&] { use(folder.path()); });
    put_file(folder / names[which], good[which]);
  }
  EXPECT_GT(attempts.loaded, static_cast<int>(draws(20)));
  EXPECT_GT(attempts.refused, static_cast<int>(draws(100)));
}

TEST(FuzzTokenizerPair, DamagedFilesAreReadOrRefused) {
  damage_files("gpt2_pair", {"merges.txt", "tokenizer_config.json", "vocab.json"});
}

TEST(FuzzTokenizerVocabulary, DamagedFilesAreReadOrRefused) {
  damage_files("bert_vocabulary_cased", {"vocab.txt", "tokenizer_config.json"});
}

}  // namespace
}  // namespace ds::test
