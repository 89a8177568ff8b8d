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

// One node of an expression. The kind decides the contents of `in`:
//   constant, name        nothing
//   list, tuple           the items
//   dict                  key, value, key, value, ...
//   attribute             the object
//   item                  the object, the index
//   slice                 the object, begin, end, step; null for a part that is not given
//   call, filter, test    the value that is called, filtered or tested, then the arguments
//   invert, minus, plus   the operand
//   both, either, binary  the two operands
//   compare               the operands, between which the operators in `words` apply
//   condition             the value, the test, the other value; null without an `else`
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
  // Number of levels of the tree from this node down; 1 for a leaf.
  int depth = 1;
  // The name of a variable, attribute, filter or test, or the sign of a binary operator.
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

// A tag with its bodies, or a stretch of text.
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
  // The names to which a loop or set assigns; in a `set` of an attribute, that attribute.
  std::vector<std::string> targets;
  // value, set: the expression. set_block: its filters, whose innermost operand is null. condition:
  // one test for each branch except the else. loop: the sequence, and the filter or null.
  std::vector<ExpressionPtr> expressions;
  // condition: one body for each branch and the else. loop: the body, then the else. Other tags
  // have at most one body.
  std::vector<Block> bodies;
  std::unique_ptr<Macro> macro;
};

}  // namespace ds::text::jinja
