#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace ds::text::jinja {

// A parser of the expressions of a template by Jinja's grammar, and the cursor over the template's
// tokens. Each level of precedence is one function.
class ExpressionParser {
 public:
  // Sets `line` to the line of each token that it looks at, so that an error can name it.
  ExpressionParser(std::vector<Token> tokens, int& line)
      : tokens_(std::move(tokens)), line_(line) {}

  // peek() returns the next token, and take() also consumes it; at the end both return the token
  // `end`.
  const Token& peek();
  Token take();
  // The functions at...() test the next token, take_...() also consume it if it matches, and
  // expect...() consume it or throw Fault.
  bool at(Token::Kind kind, std::string_view text);
  bool at_name(std::string_view text) { return at(Token::Kind::name, text); }
  bool at_mark(std::string_view text) { return at(Token::Kind::mark, text); }
  bool take_name(std::string_view text) { return take_if(Token::Kind::name, text); }
  bool take_mark(std::string_view text) { return take_if(Token::Kind::mark, text); }
  std::string expect_name();
  void expect_mark(std::string_view text);
  void expect(Token::Kind kind, std::string_view wanted);

  // Parses any expression without a top-level comma, including `a if b else c`.
  ExpressionPtr expression();
  // Parses an expression for a loop, whose `if` belongs to the loop.
  ExpressionPtr without_condition();
  // Parses an expression with commas, as after the `=` of a set.
  ExpressionPtr tuple_or_expression();
  // Parses the filters `| name(...)` that follow, around `inner`, which may be null.
  ExpressionPtr filters(ExpressionPtr inner);

 private:
  bool take_if(Token::Kind kind, std::string_view text);
  ExpressionPtr make(Expression::Kind kind, std::string text, std::vector<ExpressionPtr> in);
  ExpressionPtr constant(Value value);
  // These functions parse one level of precedence each, from `or` down to signs; each calls the
  // next one for its operands.
  ExpressionPtr either();
  ExpressionPtr both();
  ExpressionPtr invert();
  ExpressionPtr compare();
  ExpressionPtr sum();
  ExpressionPtr concat();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filters);
  // Parses the innermost level: names, literals, parentheses, lists and dictionaries.
  ExpressionPtr primary();
  ExpressionPtr parenthesis();
  ExpressionPtr number(const Token& token);
  ExpressionPtr list();
  ExpressionPtr dict();
  // Parses the attributes, items and calls after an expression; filters_and_tests() parses what
  // follows them.
  ExpressionPtr postfix(ExpressionPtr inner);
  ExpressionPtr subscript(ExpressionPtr object);
  ExpressionPtr filters_and_tests(ExpressionPtr inner);
  ExpressionPtr test(ExpressionPtr inner);
  void arguments(Expression& call);

  std::vector<Token> tokens_;
  int& line_;
  size_t next_ = 0;
  // Depth of recursion, which kDeepest bounds.
  int nested_ = 0;
};

}  // namespace ds::text::jinja
