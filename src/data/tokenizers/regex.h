#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "data/tokenizers/range.h"

namespace ds {

// A regular expression over UTF-8, matched by PCRE2 with the meaning that Oniguruma, which Hugging
// Face uses, gives it: \s \w \d are the Unicode classes of Oniguruma; constructs that the two read
// differently are refused. Work per match is limited. Any number of threads may use one.
class Regex {
 public:
  // where: the file and key, for messages. Throws DS_ERROR_UNSUPPORTED for what cannot be compiled.
  Regex(std::string_view pattern, std::string where);
  ~Regex();
  Regex(Regex&&) noexcept;

  // The matches of one text, which is UTF-8, from left to right.
  class Matches {
   public:
    Matches(const Regex& regex, std::string_view text);
    ~Matches();
    Matches(const Matches&) = delete;
    Matches& operator=(const Matches&) = delete;
    std::optional<Range> next();  // throws DS_ERROR_UNSUPPORTED when the limit is reached

   private:
    const Regex* regex_;
    std::string_view text_;
    struct State;
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

std::string escape_regex(std::string_view literal);

}  // namespace ds
