#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace ds::text::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

// One node of an expression. The contents of `in` depend on the kind. list, tuple: the items. dict:
// key, value, key, value and so on. attribute: the object. item: object, index. slice: object,
// begin, end, step, where null means that it is not given. call, filter, test: the thing called,
// filtered or tested, then the arguments. both, either, binary: the two operands. compare: the
// operands, with the operators in `words`. condition: value, test, other value, where null means
// that there is no `else`.
struct Expression {
  enum class Kind : uint8_t {
    constant,
    name,
    list,
    tuple,
    dict,
    attribute,
    item,
    slice,
    call,
    filter,
    test,
    invert,
    minus,
    plus,
    binary,
    compare,
    both,
    either,
    condition
  };
  Kind kind = Kind::constant;
  int line = 1;
  // Depth of the tree below this node.
  int depth = 1;
  // The name, attribute, filter, test or operator.
  std::string text;
  Value constant;
  std::vector<ExpressionPtr> in;
  // Named arguments of a call, filter or test.
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  std::vector<std::string> words;
};

struct Statement;
using Block = std::vector<Statement>;

// A macro. Its last parameters may have defaults.
struct Macro {
  std::string name;
  std::vector<std::string> parameters;
  // One default for each parameter; null for a parameter without a default.
  std::vector<ExpressionPtr> defaults;
  const Block* body = nullptr;
};

// One tag with its body, or text.
struct Statement {
  enum class Kind : uint8_t {
    text,
    value,
    condition,
    loop,
    set,
    set_block,
    macro,
    leave,
    go_on,
    generation
  };
  Kind kind = Kind::text;
  int line = 1;
  // The text; in a `set` of an attribute, the name of the namespace, otherwise "".
  std::string text;
  // Names to which a loop or set assigns.
  std::vector<std::string> targets;
  // value, set: the expression. set_block: its filters, whose innermost operand is null. condition:
  // one test for each body except the last. loop: the sequence, and the filter or null.
  std::vector<ExpressionPtr> expressions;
  // condition: one body for each branch and the else. loop: the body, then the else.
  std::vector<Block> bodies;
  std::unique_ptr<Macro> macro;
};

}  // namespace ds::text::jinja
