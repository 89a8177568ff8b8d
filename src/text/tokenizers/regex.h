#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "text/tokenizers/range.h"

namespace ds::text {

// A regular expression over UTF-8, matched by PCRE2 with the meaning of Oniguruma, which Hugging
// Face uses: \s and \d are the Unicode classes of Oniguruma, and constructs that the two engines
// read differently, such as \w, are refused. The work for one match is limited. Any number of
// threads may share it.
class Regex {
 public:
  // `where` is file and key, for messages. Throws DS_ERROR_UNSUPPORTED for an expression that
  // cannot be compiled.
  Regex(std::string_view pattern, std::string where);
  ~Regex();
  Regex(Regex&&) noexcept;

  // The matches in one text, which must be UTF-8, from left to right.
  class Matches {
   public:
    Matches(const Regex& regex, std::string_view text);
    ~Matches();
    Matches(const Matches&) = delete;
    Matches& operator=(const Matches&) = delete;
    // Returns the next match, or nothing. Throws DS_ERROR_UNSUPPORTED if the limit is reached.
    std::optional<Range> next();

   private:
    const Regex* regex_;
    std::string_view text_;
    struct State;
    // match() runs one match at at_; match_with_stack() does so with a larger stack for the JIT.
    int match();
    int match_with_stack();

    std::unique_ptr<State> state_;
    size_t at_ = 0;
  };

 private:
  std::string where_;
  struct Code;
  std::unique_ptr<Code> code_;
};

// Returns an expression that matches exactly this text.
std::string escape_regex(std::string_view literal);

}  // namespace ds::text
