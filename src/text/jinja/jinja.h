#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/json.h"

namespace ds::text {

// A chat template: the part of Jinja 3.1 that chat templates of Hugging Face folders use, with the
// additions of Transformers 5 (tojson, raise_exception, strftime_now, loop controls, {% generation
// %}, trim_blocks and lstrip_blocks). It is immutable, so any number of threads may share it.
//
// The source is untrusted. It is parsed to a tree (text/jinja/parser.h) that an interpreter walks,
// and nothing in it can access a file or the host's memory. Every operation pays from a budget of
// steps and bytes, and recursion is counted, so an endless loop, a text repeated a billion times
// and a macro that calls itself each end with one error. Parts of Jinja that libds lacks are
// refused by name with their line: tags, filters and tests when the template is read, methods and
// operands when it is run.
class ChatTemplate {
 public:
  struct Limits {
    // The budget of one rendering.
    int64_t steps = 5000000, bytes = int64_t{64} << 20;
  };
  struct Rendering {
    std::string text;
    // Byte ranges that {% generation %} marks, in order.
    std::vector<std::pair<size_t, size_t>> answers;
  };

  // `name` is used in messages. Throws DS_ERROR_CORRUPT if the source is not a template, and
  // DS_ERROR_UNSUPPORTED for parts of Jinja that libds lacks.
  ChatTemplate(std::string_view source, std::string name, Limits limits);
  ChatTemplate(std::string_view source, std::string name)
      : ChatTemplate(source, std::move(name), Limits()) {}
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;

  const std::string& name() const { return name_; }
  // Returns whether the template marks the text of answers.
  bool marks_answers() const;
  // Renders the template. `variables` must be an object. Throws DS_ERROR_CONFIG if the template
  // refuses them or uses something that they lack, and DS_ERROR_UNSUPPORTED beyond a limit or for a
  // part of Jinja that libds lacks.
  Rendering render(const Json& variables) const;

 private:
  struct Parsed;
  std::string name_;
  Limits limits_;
  std::unique_ptr<const Parsed> parsed_;
};

}  // namespace ds::text
