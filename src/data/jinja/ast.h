#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/jinja/value.h"

namespace ds::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

// One node of an expression. What `in` holds, by kind:
//   list, tuple: items; dict: key, value, key, value, ...; attribute: the object; item: object,
//   index; slice: object, begin, end, step (null: not given); call, filter, test: what is called,
//   filtered or tested, then arguments; both, either, binary: two operands; compare: operands, with
//   operators in `words`; condition: value, test, other value (null: none).
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
  int depth = 1;     // of the nodes below it
  std::string text;  // name, attribute, filter, test, operator
  Value constant;
  std::vector<ExpressionPtr> in;
  std::vector<std::pair<std::string, ExpressionPtr>> named;  // arguments of call, filter, test
  std::vector<std::string> words;
};

struct Statement;
using Block = std::vector<Statement>;

// A macro: its parameters, of which the last ones may have defaults.
struct Macro {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExpressionPtr> defaults;  // as many as parameters; null: none
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
  std::string text;                  // text; the namespace of a `set`, "" for none
  std::vector<std::string> targets;  // names that loop and set give values
  // value, set: the expression; set_block: its filters around nothing; condition: one test for each
  // body but the last; loop: what it goes through, and the filter (null: none).
  std::vector<ExpressionPtr> expressions;
  std::vector<Block> bodies;  // condition: one for each branch and the else; loop: body, else
  std::unique_ptr<Macro> macro;
};

}  // namespace ds::jinja
