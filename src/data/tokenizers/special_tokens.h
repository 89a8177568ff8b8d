#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/json.h"

namespace ds {

// The tokens and flags that the files beside a tokenizer name, as Transformers reads them:
// tokenizer_config.json; unless that has added_tokens_decoder, special_tokens_map.json, whose keys
// go before it, and added_tokens.json.
struct SpecialTokens {
  std::string begin, end, unknown, sep, pad, cls, mask;  // "": not named
  // Under the names that a chat template sees: those ("bos_token", ...) in their order, then the
  // model's own
  // ("image_token").
  std::vector<std::pair<std::string, std::string>> named;

  bool add_begin = false, add_end = false, begin_given = false,
       end_given = false;  // *_given: add_* is in a file
  std::optional<bool> add_prefix_space, do_lower_case, tokenize_chinese_chars, strip_accents;
  std::string tokenizer_class;
  std::set<std::string> given;  // of the usual names ("pad_token", ...), also those that are null

  // A token with the id that a file gives it.
  struct Numbered {
    int64_t id = 0;
    std::string content, file;
    Json entry;  // as in "added_tokens" of a tokenizer.json, without an id
  };
  std::vector<Numbered> numbered;  // of added_tokens_decoder or added_tokens.json, by id
  bool legacy = true;              // they are of added_tokens.json
  // Entries of the others, in the order in which Transformers adds them; the first ones are those
  // of `named`.
  Json::Array spelt;

  // The name's token where no file names one.
  void name_otherwise(const char* name, const std::string& content);
};
SpecialTokens read_special_tokens(const std::string& folder);

// "added_tokens" of a tokenizer.json with the tokens of the files beside it, as Transformers adds
// them: by content; one that the vocabulary (an object of ids by piece) or the file has keeps its
// id, others get the next free ones in order, whatever id a file gives them. Flags that
// added_tokens_decoder or added_tokens.json gives go before the file's, and what has a name is
// special.
Json::Array merge_added_tokens(const Json::Array& of_file, const Json& vocabulary,
                               const SpecialTokens& beside);

}  // namespace ds
