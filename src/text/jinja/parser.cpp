// Parses tags to statements. Loop controls cannot cross macros, set blocks and generations;
// `loops_` counts the loops that a loop control may leave.
#include "text/jinja/parser.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/contains.h"
#include "text/jinja/expression_parser.h"
#include "text/jinja/lexer.h"

namespace ds::text::jinja {
namespace {

using StatementKind = Statement::Kind;

// The largest size of a template in bytes. Templates of real models have a few hundred KB at most.
constexpr size_t kLargest = size_t{1} << 20;

class Parser {
 public:
  Parser(std::vector<Token> tokens, int& line) : in_(std::move(tokens), line) {}

  Tree run() {
    Tree tree;
    tree.body = block({});
    tree.generation = generation_;
    return tree;
  }

 private:
  // Reads statements up to a tag that begins with one of `ends`, whose name stays the next token.
  // Without `ends`, reads to the end of the template.
  Block block(std::initializer_list<std::string_view> ends) {
    if (++nested_ > kDeepest)
      fault(DS_ERROR_UNSUPPORTED, "tags are nested deeper than {}", kDeepest);
    Block out;
    while (true) {
      Token token = in_.peek();
      if (token.kind == Token::Kind::end) {
        if (ends.size() > 0) fault(DS_ERROR_CORRUPT, "{{% {} %}} is missing", *(ends.end() - 1));
        break;
      }
      in_.take();
      if (token.kind == Token::Kind::text) {
        Statement text;
        text.line = token.line;
        text.text = std::move(token.text);
        out.push_back(std::move(text));
      } else if (token.kind == Token::Kind::open_value) {
        Statement value;
        value.kind = StatementKind::value;
        value.line = token.line;
        value.expressions.push_back(in_.tuple_or_expression());
        in_.expect(Token::Kind::close_value, "}}");
        out.push_back(std::move(value));
      } else {
        const std::string name = in_.peek().text;
        if (ds::contains(ends, name)) break;
        tag(out);
      }
    }
    --nested_;
    return out;
  }

  void close() { in_.expect(Token::Kind::close_tag, "%}"); }

  // Reads one tag after its opening delimiter.
  void tag(Block& out) {
    Statement made;
    made.line = in_.peek().line;
    std::string name = in_.expect_name();
    if (name == "if") {
      condition(made);
    } else if (name == "for") {
      loop(made);
    } else if (name == "set") {
      set(made);
    } else if (name == "macro") {
      macro(made);
    } else if (name == "generation") {
      generation(made);
    } else if (name == "break" || name == "continue") {
      if (loops_ == 0) fault(DS_ERROR_CORRUPT, "{{% {} %}} is outside of a loop", name);
      made.kind = name == "break" ? StatementKind::leave : StatementKind::go_on;
      close();
    } else if (name.starts_with("end") || name == "else" || name == "elif") {
      fault(DS_ERROR_CORRUPT, "{{% {} %}} has no opening tag", name);
    } else {
      fault(DS_ERROR_UNSUPPORTED, "tag {{% {} %}} is unsupported", name);
    }
    out.push_back(std::move(made));
  }

  // Bodies follow their tests in order; a last body without a test is the else.
  void condition(Statement& made) {
    made.kind = StatementKind::condition;
    made.expressions.push_back(in_.tuple_or_expression());
    while (true) {
      close();
      made.bodies.push_back(block({"elif", "else", "endif"}));
      if (in_.take_name("endif")) break;
      if (in_.take_name("elif")) {
        made.expressions.push_back(in_.tuple_or_expression());
        continue;
      }
      in_.take_name("else");
      close();
      made.bodies.push_back(block({"endif"}));
      in_.take_name("endif");
      break;
    }
    close();
  }

  // Reads one name or several, with or without parentheses.
  std::vector<std::string> names() {
    std::vector<std::string> out;
    bool open = in_.take_mark("(");
    do {
      out.push_back(in_.expect_name());
    } while (in_.take_mark(","));
    if (open) in_.expect_mark(")");
    return out;
  }

  // The else of a loop is outside of it for break and continue.
  void loop(Statement& made) {
    made.kind = StatementKind::loop;
    made.targets = names();
    if (!in_.take_name("in")) fault(DS_ERROR_CORRUPT, "'in' is expected after the names of a loop");
    made.expressions.push_back(in_.without_condition());
    made.expressions.push_back(in_.take_name("if") ? in_.expression() : nullptr);
    if (in_.at_name("recursive")) fault(DS_ERROR_UNSUPPORTED, "a recursive loop is unsupported");
    close();
    ++loops_;
    made.bodies.push_back(block({"else", "endfor"}));
    --loops_;
    if (in_.take_name("else")) {
      close();
      made.bodies.push_back(block({"endfor"}));
    }
    in_.take_name("endfor");
    close();
  }

  // With `=` the value is an expression; without `=` it is the text of a block.
  void set(Statement& made) {
    made.targets = names();
    if (made.targets.size() == 1 && in_.take_mark(".")) {
      made.text = made.targets[0];
      made.targets[0] = in_.expect_name();
    }
    if (in_.take_mark("=")) {
      made.kind = StatementKind::set;
      made.expressions.push_back(in_.tuple_or_expression());
      return close();
    }
    made.kind = StatementKind::set_block;
    made.expressions.push_back(in_.filters(nullptr));
    close();
    int loops = std::exchange(loops_, 0);
    ++captured_;
    made.bodies.push_back(block({"endset"}));
    --captured_;
    loops_ = loops;
    in_.take_name("endset");
    close();
  }

  // Parameters may have defaults, which are computed when the macro is called.
  void macro(Statement& made) {
    made.kind = StatementKind::macro;
    // A macro can use only names of the top level (call_macro), so a macro at a place that has
    // other names is refused.
    if (nested_ > 1 && (loops_ > 0 || captured_ > 0)) {
      fault(DS_ERROR_UNSUPPORTED, "a macro inside a loop, a block or another macro is unsupported");
    }
    made.macro = std::make_unique<Macro>();
    made.macro->name = in_.expect_name();
    in_.expect_mark("(");
    while (!in_.at_mark(")")) {
      made.macro->parameters.push_back(in_.expect_name());
      made.macro->defaults.push_back(in_.take_mark("=") ? in_.expression() : nullptr);
      if (!in_.take_mark(",")) break;
    }
    in_.expect_mark(")");
    close();
    int loops = std::exchange(loops_, 0);
    ++captured_;
    made.bodies.push_back(block({"endmacro"}));
    --captured_;
    loops_ = loops;
    in_.take_name("endmacro");
    close();
    made.macro->body = made.bodies.data();
  }

  // Refuses a generation inside another one, and inside captured text, since its offsets would
  // refer to that text instead of the rendering.
  void generation(Statement& made) {
    made.kind = StatementKind::generation;
    generation_ = true;
    if (captured_ > 0) {
      fault(DS_ERROR_UNSUPPORTED,
            "{{% generation %}} inside a macro, a set or another generation is unsupported: "
            "Transformers counts its place wrongly");
    }
    close();
    int loops = std::exchange(loops_, 0);
    ++captured_;
    made.bodies.push_back(block({"endgeneration"}));
    --captured_;
    loops_ = loops;
    in_.take_name("endgeneration");
    close();
  }

  ExpressionParser in_;
  int nested_ = 0, loops_ = 0;
  // Number of macros, set blocks and generations around the current tag.
  int captured_ = 0;
  bool generation_ = false;
};

}  // namespace

Tree parse_template(std::string_view source, int& line) {
  line = 1;
  if (source.size() > kLargest) {
    fault(DS_ERROR_UNSUPPORTED, "a template may have at most {} bytes, got {}", kLargest,
          source.size());
  }
  return Parser(tokenize(source, line), line).run();
}

}  // namespace ds::text::jinja
