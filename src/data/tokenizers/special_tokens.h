#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/json.h"

namespace ds {

// The special tokens that the files beside a tokenizer name: tokenizer_config.json, then
// special_tokens_map.json.
struct SpecialTokens {
  std::string begin, end, unknown, pad, mask, cls, sep;  // "": not named
  bool add_begin = false, add_end = false, begin_given = false,
       end_given = false;  // *_given: add_* is in a file
  bool add_prefix_space = false;
  // Of BERT's vocab.txt; strip_accents: as do_lower_case when it is not given.
  bool do_lower_case = true, tokenize_chinese_chars = true, strip_accents = false, accents_given = false;
};
SpecialTokens read_special_tokens(const std::string& folder);

// The tokens that the files beside a tokenizer add to it: added_tokens.json, then added_tokens_decoder of
// tokenizer_config.json. Of an id, the last one counts; in order of ids.
struct NamedToken {
  int32_t id = 0;
  std::string content, file;
  Json entry;  // as in "added_tokens" of a tokenizer.json
};
std::vector<NamedToken> read_added_tokens(const std::string& folder);
// "added_tokens" of a tokenizer.json: those, and of the tokens `special` the others that the vocabulary, an
// object of ids by piece, has. All of `special` are special, unless a file says otherwise.
Json::Array added_entries(const std::string& folder, const Json& vocabulary,
                          const std::vector<std::string>& special);

}  // namespace ds
