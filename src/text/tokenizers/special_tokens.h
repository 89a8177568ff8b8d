#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/json.h"

namespace ds::text {

// The tokens and flags that the files beside a tokenizer name, read as Transformers does: from
// tokenizer_config.json and, if added_tokens_decoder is not in it, also from
// special_tokens_map.json, whose keys have precedence, and from added_tokens.json.
struct SpecialTokens {
  // The spellings of the usual tokens; "" if no file names one.
  std::string begin, end, unknown, sep, pad, cls, mask;
  // The names that a chat template sees: those above ("bos_token", ...) in their order, then the
  // model's own ("image_token").
  std::vector<std::pair<std::string, std::string>> named;

  // begin_given is true if a file sets add_begin, and end_given if a file sets add_end.
  bool add_begin = false, add_end = false, begin_given = false, end_given = false;
  std::optional<bool> add_prefix_space, do_lower_case, tokenize_chinese_chars, strip_accents;
  // True if special tokens are not searched for in a text, so that their spellings are ordinary
  // text (split_special_tokens).
  bool split_special = false;
  // The class that the files name; tokenizer_class.h decides which one is used.
  std::string tokenizer_class;
  // Usual names ("pad_token", ...) that a file has, even with null.
  std::set<std::string> given;

  // A token with the id that a file gives it.
  struct Numbered {
    int64_t id = 0;
    std::string content, file;
    // The entry as in "added_tokens" of a tokenizer.json, without an id.
    Json entry;
  };
  // Tokens of added_tokens_decoder or added_tokens.json, ordered by id.
  std::vector<Numbered> numbered;
  // True if `numbered` comes from added_tokens.json.
  bool legacy = true;
  // Spellings to which split_special applies, which merge_added_tokens() sets: those of all entries
  // that are special, even if a later entry with other flags replaces them.
  std::set<std::string> split;
  // Entries of the tokens that a file spells without an id, in the order in which Transformers adds
  // them; those of `named` come first.
  Json::Array spelt;

  // Gives a token its spelling unless a file has done so.
  void name_otherwise(const char* name, const std::string& content);
};
// Reads the files in a folder.
SpecialTokens read_special_tokens(const std::string& folder);

// Returns "added_tokens" of a tokenizer.json together with the tokens of the files beside it, as
// Transformers adds them. Tokens are matched by content: one that the vocabulary (an object of ids
// by piece) or the file contains keeps its id, and the others get the next unused ids in order,
// whatever id a file gives them. Flags from added_tokens_decoder or added_tokens.json have
// precedence over those in the tokenizer.json, except that a token of added_tokens.json is ignored
// if the tokenizer.json has an added token with its id. Every token with a name ("pad_token") is
// special.
Json::Array merge_added_tokens(const Json::Array& of_file, const Json& vocabulary,
                               SpecialTokens& beside);

}  // namespace ds::text
