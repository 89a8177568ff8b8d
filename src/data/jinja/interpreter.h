#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/jinja/arguments.h"
#include "data/jinja/ast.h"
#include "data/jinja/fault.h"
#include "data/jinja/value.h"

namespace ds::jinja {

// Names with values. A loop, a macro and a generation have a scope of their own for each run of
// their body.
struct Scope {
  const Scope* outer = nullptr;
  std::vector<std::pair<std::string_view, Value>> names = {};  // texts of the tree or of the caller

  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

// One rendering of a tree.
class Interpreter {
 public:
  // root has what the caller gives; it takes what the template sets at its top. All are borrowed.
  Interpreter(Scope& root, Budget& budget) : root_(root), budget_(budget) {}

  void run(const Block& block) { static_cast<void>(block_of(block, root_)); }

  int line() const { return line_; }  // that is being run
  std::string& text() { return text_; }
  // Byte ranges of the text that {% generation %} marks.
  std::vector<std::pair<size_t, size_t>>& answers() { return answers_; }

 private:
  enum class Flow { next, leave, go_on };
  class Nested;

  Flow block_of(const Block& block, Scope& scope);
  Flow statement(const Statement& one, Scope& scope);
  Flow condition(const Statement& one, Scope& scope);
  Flow loop(const Statement& one, Scope& scope);
  void set(const Statement& one, Scope& scope);
  void set_block(const Statement& one, Scope& scope);
  void generation(const Statement& one, Scope& scope);
  void assign(const std::vector<std::string>& targets, const Value& value, Scope& scope);
  void put(std::string_view text);
  // The text that a block makes, which is not put out.
  std::string captured(const Block& block, Scope& scope);

  Value value(const Expression& e, const Scope& scope);
  Value name(const Expression& e, const Scope& scope);
  Value dict(const Expression& e, const Scope& scope);
  Value chain(const Expression& e, const Scope& scope);
  Value sliced(const Expression& e, const Scope& scope);
  Value call(const Expression& e, const Scope& scope);
  Value call_macro(const Macro& macro, const Arguments& arguments);
  Arguments arguments(const Expression& e, const Scope& scope);
  Values all(const Expression& e, const Scope& scope, size_t from);

  Scope& root_;
  Budget& budget_;
  std::string text_;
  std::vector<std::pair<size_t, size_t>> answers_;
  int line_ = 1, depth_ = 0;
};

}  // namespace ds::jinja
