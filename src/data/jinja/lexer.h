#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ds::jinja {

// One token of a template. Text between tags is one token; a tag is `open`, what is inside, and
// `close`.
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
  std::string text;  // of a string: its content; of a mark: "==", "(", ...
  int line = 1;
};

// The tokens of a template as Jinja 3.1 reads it with trim_blocks and lstrip_blocks, which
// Transformers sets: a tag takes the line end behind it and the spaces before it on its line; `-`
// at a delimiter takes all white space on that side, `+` none. The last token is `end`. Throws
// Fault, with the line of the fault in `line`.
std::vector<Token> tokenize(std::string_view source, int& line);

}  // namespace ds::jinja
