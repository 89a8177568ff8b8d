#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ds::text::jinja {

// One token of a template. Text between tags is one token. A tag is an opening token, the tokens
// inside, and a closing token.
struct Token {
  enum class Kind : uint8_t {
    text,
    open_value,
    close_value,
    open_tag,
    close_tag,
    name,
    string,
    integer,
    real,
    mark,
    end
  };
  Kind kind = Kind::end;
  // The text between tags, the content of a string, the characters of a name or number, or those of
  // a mark such as "==" or "(".
  std::string text;
  int line = 1;
};

// Returns the tokens of a template as Jinja 3.1 reads it with trim_blocks and lstrip_blocks, which
// Transformers sets: a tag removes the line end after it and, if only spaces precede it on its
// line, these spaces. A `-` at a delimiter removes all white space on that side, a `+` none. The
// last token is `end`. Throws Fault if the source is not valid; `line` is then the line of the
// error.
std::vector<Token> tokenize(std::string_view source, int& line);

}  // namespace ds::text::jinja
