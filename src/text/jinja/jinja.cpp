// Turns faults into errors with the template's name and line.
#include "text/jinja/jinja.h"

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"

namespace ds::text {

struct ChatTemplate::Parsed {
  jinja::Tree tree;
};

// The parser keeps `line` at its current line, which an error names.
ChatTemplate::ChatTemplate(std::string_view source, std::string name, Limits limits)
    : name_(std::move(name)), limits_(limits) {
  if (!is_utf8(source)) raise(DS_ERROR_CORRUPT, "{}: the chat template is not UTF-8", name_);
  auto parsed = std::make_unique<Parsed>();
  int line = 1;
  try {
    parsed->tree = jinja::parse_template(source, line);
  } catch (const jinja::Fault& fault) {
    raise(fault.status, "{}: line {} of the chat template: {}", name_, line, fault.message);
  }
  parsed_ = std::move(parsed);
}

ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;

bool ChatTemplate::marks_answers() const { return parsed_->tree.generation; }

ChatTemplate::Rendering ChatTemplate::render(const Json& variables) const {
  // Variables are paid for as well: a conversation may be large even before the template runs.
  jinja::Budget budget(limits_.steps, limits_.bytes);
  jinja::Scope root;
  jinja::Interpreter interpreter(root, budget);
  try {
    for (const auto& [key, value] : variables.object()) {
      root.names.emplace_back(key, jinja::Value::from_json(value, budget));
    }
    interpreter.run(parsed_->tree.body);
  } catch (const jinja::Fault& fault) {
    raise(fault.status, "{}: line {} of the chat template: {}", name_, interpreter.line(),
          fault.message);
  }
  return {std::move(interpreter.text()), std::move(interpreter.answers())};
}

}  // namespace ds::text
