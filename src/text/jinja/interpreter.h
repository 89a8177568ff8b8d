#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/arguments.h"
#include "text/jinja/ast.h"
#include "text/jinja/fault.h"
#include "text/jinja/value.h"

namespace ds::text::jinja {

// Names and their values. Each execution of the body of a loop, macro, set block or generation has
// its own scope.
struct Scope {
  const Scope* outer = nullptr;
  // The names are views of texts that the tree or the caller owns.
  std::vector<std::pair<std::string_view, Value>> names = {};

  // Looks the name up in this scope, then in the outer ones. Returns null if it has no value.
  const Value* find(std::string_view name) const;
  // Sets the name in this scope only.
  void set(std::string_view name, Value value);
};

// One rendering of a tree.
class Interpreter {
 public:
  // `root` holds the caller's variables and receives those that the template sets at its top level.
  // Both arguments are borrowed.
  Interpreter(Scope& root, Budget& budget) : root_(root), budget_(budget) {}

  void run(const Block& block) { static_cast<void>(block_of(block, root_)); }

  // Returns the line of the template that is being executed.
  int line() const { return line_; }
  std::string& text() { return text_; }
  // Returns the byte ranges of the text that {% generation %} marks.
  std::vector<std::pair<size_t, size_t>>& answers() { return answers_; }

 private:
  // The way in which a statement ended: normally, by break, or by continue.
  enum class Flow { next, leave, go_on };
  // One level of recursion, for which a step is paid.
  class Nested;

  Flow block_of(const Block& block, Scope& scope);
  Flow statement(const Statement& one, Scope& scope);
  Flow condition(const Statement& one, Scope& scope);
  Flow loop(const Statement& one, Scope& scope);
  void set(const Statement& one, Scope& scope);
  void set_block(const Statement& one, Scope& scope);
  void generation(const Statement& one, Scope& scope);
  // Assigns a value to one name, or its items to several.
  void assign(const std::vector<std::string>& targets, const Value& value, Scope& scope);
  // Appends to the text, paying for its bytes.
  void put(std::string_view text);
  // Runs a block and returns its text instead of appending it.
  std::string captured(const Block& block, Scope& scope);

  Value value(const Expression& e, const Scope& scope);
  Value name(const Expression& e, const Scope& scope);
  Value dict(const Expression& e, const Scope& scope);
  // Evaluates a chain of comparisons such as a < b < c.
  Value chain(const Expression& e, const Scope& scope);
  Value sliced(const Expression& e, const Scope& scope);
  Value call(const Expression& e, const Scope& scope);
  Value call_macro(const Macro& macro, const Arguments& arguments);
  Arguments arguments(const Expression& e, const Scope& scope);
  // Returns the values of all expressions of `in` from index `from` on.
  Values all(const Expression& e, const Scope& scope, size_t from);

  Scope& root_;
  Budget& budget_;
  std::string text_;
  std::vector<std::pair<size_t, size_t>> answers_;
  // The line that is being executed, for messages, and the depth of recursion.
  int line_ = 1, depth_ = 0;
};

}  // namespace ds::text::jinja
