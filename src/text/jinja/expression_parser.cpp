// A recursive descent parser of Jinja's expressions. Recursion is bounded by `nested_` and by the
// depth of the tree, since the source is untrusted.
#include "text/jinja/expression_parser.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <system_error>

#include "core/base/contains.h"
#include "text/jinja/filters.h"
#include "text/jinja/numbers.h"
#include "text/jinja/tests.h"

namespace ds::text::jinja {
namespace {

using NodeKind = Expression::Kind;

std::vector<ExpressionPtr> nodes(ExpressionPtr a, ExpressionPtr b = nullptr) {
  std::vector<ExpressionPtr> out;
  out.push_back(std::move(a));
  if (b) out.push_back(std::move(b));
  return out;
}

std::string shown(const Token& token) {
  switch (token.kind) {
    case Token::Kind::end:
      return "the end of the template";
    case Token::Kind::close_tag:
      return "'%}'";
    case Token::Kind::close_value:
      return "'}}'";
    default:
      return "'" + token.text + "'";
  }
}

// Words that cannot be names.
constexpr std::string_view kReserved[] = {"and", "or", "not", "if", "else", "elif", "in", "is"};

bool is_reserved(const std::string& name) { return ds::contains(kReserved, name); }

}  // namespace

const Token& ExpressionParser::peek() {
  line_ = tokens_[next_].line;
  return tokens_[next_];
}

Token ExpressionParser::take() {
  Token out = peek();
  if (next_ + 1 < tokens_.size()) ++next_;
  return out;
}

bool ExpressionParser::at(Token::Kind kind, std::string_view text) {
  const Token& token = peek();
  return token.kind == kind && token.text == text;
}

bool ExpressionParser::take_if(Token::Kind kind, std::string_view text) {
  if (!at(kind, text)) return false;
  take();
  return true;
}

std::string ExpressionParser::expect_name() {
  if (peek().kind != Token::Kind::name)
    fault(DS_ERROR_CORRUPT, "a name is expected, got {}", shown(peek()));
  return take().text;
}

void ExpressionParser::expect_mark(std::string_view text) {
  if (!take_mark(text)) fault(DS_ERROR_CORRUPT, "'{}' is expected, got {}", text, shown(peek()));
}

void ExpressionParser::expect(Token::Kind kind, std::string_view wanted) {
  if (peek().kind != kind)
    fault(DS_ERROR_CORRUPT, "'{}' is expected, got {}", wanted, shown(peek()));
  take();
}

// Every node is created here, which checks its depth. Arguments are added to a node later; their
// depth is checked when a node around it is created.
ExpressionPtr ExpressionParser::make(NodeKind kind, std::string text,
                                     std::vector<ExpressionPtr> in) {
  auto out = std::make_unique<Expression>();
  out->kind = kind;
  // The line of the token that was consumed last.
  out->line = tokens_[next_ > 0 ? next_ - 1 : 0].line;
  out->text = std::move(text);
  for (const ExpressionPtr& one : in) out->depth = std::max(out->depth, one ? one->depth + 1 : 1);
  out->in = std::move(in);
  if (out->depth > kDeepest)
    fault(DS_ERROR_UNSUPPORTED, "an expression is nested deeper than {}", kDeepest);
  return out;
}

ExpressionPtr ExpressionParser::constant(Value value) {
  ExpressionPtr out = make(NodeKind::constant, "", {});
  out->constant = std::move(value);
  return out;
}

ExpressionPtr ExpressionParser::expression() {
  // Brackets and the else of a condition lead back here. The source decides how often, so the
  // recursion is counted.
  if (++nested_ > kDeepest)
    fault(DS_ERROR_UNSUPPORTED, "an expression is nested deeper than {}", kDeepest);
  ExpressionPtr value = either();
  while (take_name("if")) {
    std::vector<ExpressionPtr> in = nodes(std::move(value), either());
    in.push_back(take_name("else") ? expression() : nullptr);
    value = make(NodeKind::condition, "", std::move(in));
  }
  --nested_;
  return value;
}

// In `for x in a if b`, the `if` belongs to the loop.
ExpressionPtr ExpressionParser::without_condition() { return either(); }

// A trailing comma makes a tuple as well, so the tag may end right after it.
ExpressionPtr ExpressionParser::tuple_or_expression() {
  ExpressionPtr first = expression();
  if (!at_mark(",")) return first;
  std::vector<ExpressionPtr> in = nodes(std::move(first));
  while (take_mark(",")) {
    if (peek().kind == Token::Kind::close_tag || peek().kind == Token::Kind::close_value) break;
    in.push_back(expression());
  }
  return make(NodeKind::tuple, "", std::move(in));
}

// `or` binds loosest, then `and`, then `not`.
ExpressionPtr ExpressionParser::either() {
  ExpressionPtr left = both();
  while (take_name("or")) left = make(NodeKind::either, "", nodes(std::move(left), both()));
  return left;
}

ExpressionPtr ExpressionParser::both() {
  ExpressionPtr left = invert();
  while (take_name("and")) left = make(NodeKind::both, "", nodes(std::move(left), invert()));
  return left;
}

ExpressionPtr ExpressionParser::invert() {
  if (!take_name("not")) return compare();
  if (++nested_ > kDeepest)
    fault(DS_ERROR_UNSUPPORTED, "an expression is nested deeper than {}", kDeepest);
  ExpressionPtr out = make(NodeKind::invert, "", nodes(invert()));
  --nested_;
  return out;
}

// Comparisons chain as in Python: a < b < c compares b with both.
ExpressionPtr ExpressionParser::compare() {
  std::vector<ExpressionPtr> in = nodes(sum());
  std::vector<std::string> words;
  while (true) {
    std::string word;
    for (std::string_view mark : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (word.empty() && take_mark(mark)) word = mark;
    }
    if (word.empty() && take_name("in")) word = "in";
    if (word.empty() && at_name("not") && tokens_[next_ + 1].text == "in") {
      take();
      take();
      word = "not in";
    }
    if (word.empty()) break;
    words.push_back(word);
    in.push_back(sum());
  }
  if (words.empty()) return std::move(in[0]);
  ExpressionPtr out = make(NodeKind::compare, "", std::move(in));
  out->words = std::move(words);
  return out;
}

// Jinja puts `~` between + and *: it binds tighter than +.
ExpressionPtr ExpressionParser::sum() {
  ExpressionPtr left = concat();
  while (at_mark("+") || at_mark("-")) {
    std::string mark = take().text;
    left = make(NodeKind::binary, mark, nodes(std::move(left), concat()));
  }
  return left;
}

ExpressionPtr ExpressionParser::concat() {
  ExpressionPtr left = product();
  while (take_mark("~")) left = make(NodeKind::binary, "~", nodes(std::move(left), product()));
  return left;
}

ExpressionPtr ExpressionParser::product() {
  ExpressionPtr left = power();
  while (at_mark("*") || at_mark("/") || at_mark("//") || at_mark("%")) {
    std::string mark = take().text;
    left = make(NodeKind::binary, mark, nodes(std::move(left), power()));
  }
  return left;
}

// Jinja groups ** from the left, unlike Python.
ExpressionPtr ExpressionParser::power() {
  ExpressionPtr left = unary(true);
  while (take_mark("**")) left = make(NodeKind::binary, "**", nodes(std::move(left), unary(true)));
  return left;
}

// As in Jinja, a filter applies to the signed value: `-x|abs` is the abs of -x.
ExpressionPtr ExpressionParser::unary(bool with_filters) {
  ExpressionPtr out;
  if (at_mark("-") || at_mark("+")) {
    if (++nested_ > kDeepest)
      fault(DS_ERROR_UNSUPPORTED, "an expression is nested deeper than {}", kDeepest);
    NodeKind kind = take().text == "-" ? NodeKind::minus : NodeKind::plus;
    out = make(kind, "", nodes(unary(false)));
    --nested_;
  } else {
    out = primary();
  }
  out = postfix(std::move(out));
  return with_filters ? filters_and_tests(std::move(out)) : std::move(out);
}

// true, false and none are constants, which may also begin with a capital letter.
ExpressionPtr ExpressionParser::primary() {
  const Token token = peek();
  switch (token.kind) {
    case Token::Kind::name:
      if (is_reserved(token.text)) break;
      take();
      if (token.text == "true" || token.text == "True") return constant(Value::of(true));
      if (token.text == "false" || token.text == "False") return constant(Value::of(false));
      if (token.text == "none" || token.text == "None") return constant(Value::none());
      return make(NodeKind::name, token.text, {});
    case Token::Kind::string: {
      std::string text;
      // Adjacent strings are joined, as in Python.
      while (peek().kind == Token::Kind::string) text += take().text;
      return constant(Value::paid(std::move(text)));
    }
    case Token::Kind::integer:
    case Token::Kind::real:
      return number(take());
    case Token::Kind::mark:
      if (token.text == "(") return parenthesis();
      if (token.text == "[") return list();
      if (token.text == "{") return dict();
      break;
    default:
      break;
  }
  fault(DS_ERROR_CORRUPT, "an expression is expected, got {}", shown(token));
}

// A comma makes a tuple; parentheses alone only group.
ExpressionPtr ExpressionParser::parenthesis() {
  take();
  if (take_mark(")")) return make(NodeKind::tuple, "", {});
  ExpressionPtr first = expression();
  if (take_mark(")")) return first;
  std::vector<ExpressionPtr> in = nodes(std::move(first));
  while (take_mark(",") && !at_mark(")")) in.push_back(expression());
  expect_mark(")");
  return make(NodeKind::tuple, "", std::move(in));
}

// Refuses integers beyond 64 bits and floats beyond their range, unlike Python.
ExpressionPtr ExpressionParser::number(const Token& token) {
  if (token.kind == Token::Kind::real) {
    const std::optional<double> value = read_real(token.text);
    if (!value) fault(DS_ERROR_CORRUPT, "'{}' is not a number", token.text);
    // Jinja writes an infinity into Python code, where it is an undefined name in most places.
    if (std::isinf(*value))
      fault(DS_ERROR_UNSUPPORTED, "'{}' is beyond the range of a float", token.text);
    return constant(Value::of(*value));
  }
  const char *begin = token.text.data(), *end = begin + token.text.size();
  int64_t value = 0;
  auto [last, error] = std::from_chars(begin, end, value);
  if (error != std::errc() || last != end)
    fault(DS_ERROR_UNSUPPORTED, "'{}' has more than 64 bits", token.text);
  return constant(Value::of(value));
}

ExpressionPtr ExpressionParser::list() {
  take();
  std::vector<ExpressionPtr> in;
  while (!at_mark("]")) {
    in.push_back(expression());
    if (!take_mark(",")) break;
  }
  expect_mark("]");
  return make(NodeKind::list, "", std::move(in));
}

ExpressionPtr ExpressionParser::dict() {
  take();
  std::vector<ExpressionPtr> in;
  while (!at_mark("}")) {
    in.push_back(expression());
    expect_mark(":");
    in.push_back(expression());
    if (!take_mark(",")) break;
  }
  expect_mark("}");
  return make(NodeKind::dict, "", std::move(in));
}

// Reads attributes, items and calls, which bind tightest. `a.0` is an item.
ExpressionPtr ExpressionParser::postfix(ExpressionPtr inner) {
  while (true) {
    if (take_mark(".")) {
      if (peek().kind == Token::Kind::integer) {
        inner = make(NodeKind::item, "", nodes(std::move(inner), number(take())));
      } else {
        inner = make(NodeKind::attribute, expect_name(), nodes(std::move(inner)));
      }
    } else if (take_mark("[")) {
      inner = subscript(std::move(inner));
    } else if (take_mark("(")) {
      inner = make(NodeKind::call, "", nodes(std::move(inner)));
      arguments(*inner);
    } else {
      return inner;
    }
  }
}

// Bounds of a slice that are not given are null.
ExpressionPtr ExpressionParser::subscript(ExpressionPtr object) {
  std::vector<ExpressionPtr> in = nodes(std::move(object));
  bool slice = false;
  if (at_mark(":")) {
    in.push_back(nullptr);
  } else {
    in.push_back(expression());
  }
  while (take_mark(":")) {
    slice = true;
    in.push_back(at_mark(":") || at_mark("]") ? nullptr : expression());
  }
  expect_mark("]");
  // A slice has up to three parts after the object.
  if (in.size() > 4) fault(DS_ERROR_CORRUPT, "a slice has more than three parts");
  if (slice) in.resize(4);
  return make(slice ? NodeKind::slice : NodeKind::item, "", std::move(in));
}

// A call may follow a filter or test, as in `x | f(...)(...)`.
ExpressionPtr ExpressionParser::filters_and_tests(ExpressionPtr inner) {
  while (true) {
    if (at_mark("|")) {
      inner = filters(std::move(inner));
    } else if (take_name("is")) {
      inner = test(std::move(inner));
    } else if (at_mark("(")) {
      inner = postfix(std::move(inner));
    } else {
      return inner;
    }
  }
}

// An unknown filter is refused when the template is read, even if it would never run.
ExpressionPtr ExpressionParser::filters(ExpressionPtr inner) {
  while (take_mark("|")) {
    std::string name = expect_name();
    if (!is_filter(name)) fault(DS_ERROR_UNSUPPORTED, "filter '{}' is unsupported", name);
    std::vector<ExpressionPtr> in;
    in.push_back(std::move(inner));
    inner = make(NodeKind::filter, name, std::move(in));
    if (take_mark("(")) arguments(*inner);
  }
  return inner;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr inner) {
  bool inverted = take_name("not");
  std::string name = expect_name();
  if (!is_test(name)) fault(DS_ERROR_UNSUPPORTED, "test '{}' is unsupported", name);
  ExpressionPtr out = make(NodeKind::test, name, nodes(std::move(inner)));
  // As in Jinja, a test may have one argument without parentheses. A literal, an opening bracket or
  // brace, or a name other than and, or and else begins it.
  const Token& next = peek();
  bool mark = next.kind == Token::Kind::mark && (next.text == "[" || next.text == "{");
  bool word = next.kind == Token::Kind::name && next.text != "and" && next.text != "or" &&
              next.text != "else";
  bool literal = next.kind == Token::Kind::string || next.kind == Token::Kind::integer ||
                 next.kind == Token::Kind::real;
  if (take_mark("(")) {
    arguments(*out);
  } else if (mark || word || literal) {
    ExpressionPtr argument = postfix(primary());
    out->depth = std::max(out->depth, argument->depth + 1);
    out->in.push_back(std::move(argument));
  }
  return inverted ? make(NodeKind::invert, "", nodes(std::move(out))) : std::move(out);
}

// Reads the arguments and the closing parenthesis; the opening one has been read.
void ExpressionParser::arguments(Expression& call) {
  while (!at_mark(")")) {
    if (at_mark("*") || at_mark("**"))
      fault(DS_ERROR_UNSUPPORTED, "'*' before an argument is unsupported");
    ExpressionPtr value;
    bool named = peek().kind == Token::Kind::name && tokens_[next_ + 1].kind == Token::Kind::mark &&
                 tokens_[next_ + 1].text == "=";
    if (named) {
      std::string name = take().text;
      take();
      value = expression();
      call.depth = std::max(call.depth, value->depth + 1);
      call.named.emplace_back(name, std::move(value));
    } else {
      value = expression();
      call.depth = std::max(call.depth, value->depth + 1);
      call.in.push_back(std::move(value));
    }
    if (!take_mark(",")) break;
  }
  expect_mark(")");
}

}  // namespace ds::text::jinja
