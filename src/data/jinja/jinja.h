#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/json.h"

namespace ds {

// A chat template: the part of Jinja 3.1 that chat templates of Hugging Face folders use, with what
// Transformers 5 gives them (tojson, raise_exception, strftime_now, loop controls, {% generation
// %}, trim_blocks and lstrip_blocks). Immutable: any number of threads may use one.
//
// The source is untrusted. It is parsed to a tree (data/jinja/parser.h) that an interpreter walks;
// there is nothing in it that could reach a file or the host's memory. Every operation pays from a
// budget of steps and bytes, and recursion is counted, so that an endless loop, a text repeated a
// billion times and a macro that calls itself each end with one error. What libds lacks of Jinja is
// refused by name with its line, when the template is read (tags, filters, tests) or when it is run
// (methods, operands).
class ChatTemplate {
 public:
  struct Limits {
    int64_t steps = 5000000, bytes = int64_t{64} << 20;  // of one rendering
  };
  struct Rendering {
    std::string text;
    std::vector<std::pair<size_t, size_t>>
        answers;  // byte ranges that {% generation %} marks, in order
  };

  // name: for messages. Throws DS_ERROR_CORRUPT for what is no template, DS_ERROR_UNSUPPORTED.
  ChatTemplate(std::string_view source, std::string name, Limits limits);
  ChatTemplate(std::string_view source, std::string name)
      : ChatTemplate(source, std::move(name), Limits()) {}
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;

  const std::string& name() const { return name_; }
  // Whether the template says which text is an answer.
  bool marks_answers() const;
  // variables: an object. DS_ERROR_CONFIG when the template refuses them or uses what they do not
  // have, DS_ERROR_UNSUPPORTED beyond a limit.
  Rendering render(const Json& variables) const;

 private:
  struct Parsed;
  std::string name_;
  Limits limits_;
  std::unique_ptr<const Parsed> parsed_;
};

}  // namespace ds
