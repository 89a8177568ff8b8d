#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "data/jinja/ast.h"
#include "data/jinja/lexer.h"

namespace ds::jinja {

// The tokens of a template in order, and its expressions, by Jinja's grammar.
class ExpressionParser {
 public:
  // line: that of the last token that was looked at.
  ExpressionParser(std::vector<Token> tokens, int& line)
      : tokens_(std::move(tokens)), line_(line) {}

  const Token& peek();
  Token take();
  bool at(Token::Kind kind, std::string_view text);
  bool at_name(std::string_view text) { return at(Token::Kind::name, text); }
  bool at_mark(std::string_view text) { return at(Token::Kind::mark, text); }
  bool take_name(std::string_view text) { return take_if(Token::Kind::name, text); }
  bool take_mark(std::string_view text) { return take_if(Token::Kind::mark, text); }
  std::string expect_name();
  void expect_mark(std::string_view text);
  void expect(Token::Kind kind, std::string_view wanted);

  ExpressionPtr expression();           // with `if ... else`
  ExpressionPtr without_condition();    // as a loop needs it, whose `if` is its own
  ExpressionPtr tuple_or_expression();  // with commas, as after `=` of a set
  // The filters `| name(...)` that follow, around `inner`, which may be null.
  ExpressionPtr filters(ExpressionPtr inner);

 private:
  bool take_if(Token::Kind kind, std::string_view text);
  ExpressionPtr make(Expression::Kind kind, std::string text, std::vector<ExpressionPtr> in);
  ExpressionPtr constant(Value value);
  ExpressionPtr either();
  ExpressionPtr both();
  ExpressionPtr invert();
  ExpressionPtr compare();
  ExpressionPtr sum();
  ExpressionPtr concat();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filters);
  ExpressionPtr primary();
  ExpressionPtr parenthesis();
  ExpressionPtr number(const Token& token);
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr postfix(ExpressionPtr inner);
  ExpressionPtr subscript(ExpressionPtr object);
  ExpressionPtr filters_and_tests(ExpressionPtr inner);
  ExpressionPtr test(ExpressionPtr inner);
  void arguments(Expression& call);

  std::vector<Token> tokens_;
  int& line_;
  size_t next_ = 0;
  int nested_ = 0;
};

}  // namespace ds::jinja
