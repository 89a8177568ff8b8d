// Walks the tree of a template.
//
// Problem: a template is untrusted code. It may loop without end, double a text again and again, or
// call itself. Invariant: every node that runs has paid a step and adds a level of depth (Nested),
// and every text, list and scope has paid for its bytes before it exists. So a rendering ends after
// a bounded time, in bounded memory, and far from the end of the stack.
//
// Algorithm: statements append to one text; a block whose text is captured (set, macro) runs with
// an empty one. Scopes form a chain, in which a name is looked up from the inside outwards; only
// the innermost scope changes, as in Jinja. Values are immutable except namespaces (and generators,
// which remember that they have been read), so they are shared and not copied. break and continue
// travel outwards as Flow.
//
// Source: the semantics are those of Jinja 3.1's compiler and runtime, with the settings of
// Transformers.
#include "text/jinja/interpreter.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>

#include "text/jinja/access.h"
#include "text/jinja/filters.h"
#include "text/jinja/functions.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/tests.h"
#include "text/jinja/value.h"

namespace ds::text::jinja {
namespace {

using NodeKind = Expression::Kind;

// Largest depth of nested expressions, blocks and macros. A level needs a few hundred bytes of
// stack.
constexpr int kDeepestRun = 600;

}  // namespace

// One level of depth, from construction to destruction. The constructor sets the line and pays for
// one step.
class Interpreter::Nested {
 public:
  Nested(Interpreter& interpreter, int line) : interpreter_(interpreter) {
    interpreter.line_ = line;
    interpreter.budget_.work(1);
    if (++interpreter.depth_ > kDeepestRun) {
      --interpreter.depth_;
      fault(DS_ERROR_UNSUPPORTED, "macros and blocks are nested deeper than {} when they run",
            kDeepestRun);
    }
  }
  ~Nested() { --interpreter_.depth_; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;

 private:
  Interpreter& interpreter_;
};

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope; scope = scope->outer) {
    for (const auto& [known, value] : scope->names) {
      if (known == name) return &value;
    }
  }
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  for (auto& [known, old] : names) {
    if (known == name) {
      old = std::move(value);
      return;
    }
  }
  names.emplace_back(name, std::move(value));
}

void Interpreter::put(std::string_view text) {
  budget_.memory(text.size());
  text_ += text;
}

// The text so far is set aside while the block runs.
std::string Interpreter::captured(const Block& block, Scope& scope) {
  std::string before = std::exchange(text_, "");
  static_cast<void>(block_of(block, scope));
  return std::exchange(text_, std::move(before));
}

// Stops at a break or continue, which the innermost loop handles.
Interpreter::Flow Interpreter::block_of(const Block& block, Scope& scope) {
  for (const Statement& one : block) {
    Flow flow = statement(one, scope);
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

// Every statement costs one step and adds one level of depth.
Interpreter::Flow Interpreter::statement(const Statement& one, Scope& scope) {
  Nested nested(*this, one.line);
  switch (one.kind) {
    case Statement::Kind::text:
      put(one.text);
      break;
    case Statement::Kind::value:
      put(value(*one.expressions[0], scope).str(budget_));
      break;
    case Statement::Kind::condition:
      return condition(one, scope);
    case Statement::Kind::loop:
      return loop(one, scope);
    case Statement::Kind::set:
      set(one, scope);
      break;
    case Statement::Kind::set_block:
      set_block(one, scope);
      break;
    case Statement::Kind::macro:
      scope.set(one.macro->name, Value::of(static_cast<const Macro*>(one.macro.get())));
      break;
    case Statement::Kind::leave:
      return Flow::leave;
    case Statement::Kind::go_on:
      return Flow::go_on;
    case Statement::Kind::generation:
      generation(one, scope);
      break;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::condition(const Statement& one, Scope& scope) {
  for (size_t i = 0; i < one.expressions.size(); ++i) {
    if (value(*one.expressions[i], scope).truth()) return block_of(one.bodies[i], scope);
  }
  if (one.bodies.size() > one.expressions.size()) return block_of(one.bodies.back(), scope);
  return Flow::next;
}

Interpreter::Flow Interpreter::loop(const Statement& one, Scope& scope) {
  auto items = std::make_shared<Values>(iterate(value(*one.expressions[0], scope), budget_));
  if (const Expression* filter = one.expressions[1].get()) {
    Values kept;
    // As in Jinja, the filter runs over all items before the first round, so `loop.length` includes
    // only those kept.
    for (Value& item : *items) {
      Scope inner{&scope};
      assign(one.targets, item, inner);
      if (value(*filter, inner).truth()) kept.push_back(std::move(item));
    }
    *items = std::move(kept);
  }
  Flow flow = Flow::next;
  // As in Jinja, `else` also runs if no round reaches the end of the body.
  bool otherwise = true;
  for (size_t i = 0; i < items->size() && flow != Flow::leave; ++i) {
    Nested nested(*this, one.line);
    auto state = std::make_shared<Loop>();
    state->items = items;
    state->at = static_cast<int64_t>(i);
    Scope inner{&scope};
    inner.set("loop", Value::of(std::move(state)));
    assign(one.targets, (*items)[i], inner);
    flow = block_of(one.bodies[0], inner);
    otherwise = otherwise && flow != Flow::next;
  }
  if (otherwise && one.bodies.size() > 1) return block_of(one.bodies[1], scope);
  return Flow::next;
}

void Interpreter::assign(const std::vector<std::string>& targets, const Value& value,
                         Scope& scope) {
  if (targets.size() == 1) return scope.set(targets[0], value);
  Values parts = iterate(value, budget_);
  if (parts.size() != targets.size()) {
    fault(DS_ERROR_CONFIG, "{} names cannot be assigned from {} values", targets.size(),
          parts.size());
  }
  for (size_t i = 0; i < parts.size(); ++i) scope.set(targets[i], parts[i]);
}

// `set ns.name = ...` changes a namespace, the only value that can change.
void Interpreter::set(const Statement& one, Scope& scope) {
  Value made = value(*one.expressions[0], scope);
  if (one.text.empty()) return assign(one.targets, made, scope);
  const Value* found = scope.find(one.text);
  if (!found || !found->is_space()) {
    fault(DS_ERROR_CONFIG, "'{}' is not a namespace, so its attribute cannot be set", one.text);
  }
  if (made.is_space()) fault(DS_ERROR_UNSUPPORTED, "a namespace in a namespace is unsupported");
  if (one.targets[0].starts_with("_"))
    fault(DS_ERROR_CONFIG, "attribute '{}' cannot be set", one.targets[0]);
  // A copy of the value shares its members.
  Value space = *found;
  for (auto& [key, old] : space.members().items) {
    if (key != one.targets[0]) continue;
    old = std::move(made);
    return;
  }
  budget_.memory(sizeof(Value) + one.targets[0].size());
  space.members().items.emplace_back(one.targets[0], std::move(made));
}

// The captured text goes through the filters from the innermost outwards, then to the names.
void Interpreter::set_block(const Statement& one, Scope& scope) {
  Scope inner{&scope};
  Value made = Value::paid(captured(one.bodies[0], inner));
  if (const Expression* filter = one.expressions[0].get()) {
    // The first operand of each filter is the filter inside it.
    std::vector<const Expression*> filters;
    for (const Expression* at = filter; at; at = at->in[0].get()) filters.push_back(at);
    std::ranges::reverse(filters);
    for (const Expression* at : filters)
      made = apply_filter(at->text, made, arguments(*at, scope), budget_);
  }
  assign(one.targets, made, scope);
}

// The byte offsets before and after the body are the marks; generations cannot nest.
void Interpreter::generation(const Statement& one, Scope& scope) {
  Scope inner{&scope};
  size_t begin = text_.size();
  static_cast<void>(block_of(one.bodies[0], inner));
  answers_.emplace_back(begin, text_.size());
}

// `and`, `or` and `if` evaluate only the operands that decide.
Value Interpreter::value(const Expression& e, const Scope& scope) {
  Nested nested(*this, e.line);
  switch (e.kind) {
    case NodeKind::constant:
      return e.constant;
    case NodeKind::name:
      return name(e, scope);
    case NodeKind::list:
    case NodeKind::tuple:
      budget_.memory(e.in.size() * sizeof(Value));
      return Value::list(all(e, scope, 0), e.kind == NodeKind::tuple);
    case NodeKind::dict:
      return dict(e, scope);
    case NodeKind::attribute:
      return attribute(value(*e.in[0], scope), e.text, budget_);
    case NodeKind::item: {
      Value object = value(*e.in[0], scope);
      return item(object, value(*e.in[1], scope), budget_);
    }
    case NodeKind::slice:
      return sliced(e, scope);
    case NodeKind::call:
      return call(e, scope);
    case NodeKind::filter: {
      Value inner = value(*e.in[0], scope);
      return apply_filter(e.text, inner, arguments(e, scope), budget_);
    }
    case NodeKind::test: {
      Value inner = value(*e.in[0], scope);
      return Value::of(apply_test(e.text, inner, arguments(e, scope), budget_));
    }
    case NodeKind::invert:
      return Value::of(!value(*e.in[0], scope).truth());
    case NodeKind::minus:
      return signed_value("-", value(*e.in[0], scope));
    case NodeKind::plus:
      return signed_value("+", value(*e.in[0], scope));
    case NodeKind::binary: {
      Value left = value(*e.in[0], scope);
      return binary(e.text, left, value(*e.in[1], scope), budget_);
    }
    case NodeKind::compare:
      return chain(e, scope);
    case NodeKind::both: {
      Value left = value(*e.in[0], scope);
      return left.truth() ? value(*e.in[1], scope) : left;
    }
    case NodeKind::either: {
      Value left = value(*e.in[0], scope);
      return left.truth() ? left : value(*e.in[1], scope);
    }
    case NodeKind::condition:
      if (value(*e.in[1], scope).truth()) return value(*e.in[0], scope);
      return e.in[2] ? value(*e.in[2], scope)
                     : Value::undefined("the value of an if without else", budget_);
  }
  return {};
}

// A variable hides a function of the same name.
Value Interpreter::name(const Expression& e, const Scope& scope) {
  if (const Value* found = scope.find(e.text)) return *found;
  if (std::string_view function = function_name(e.text); !function.empty())
    return Value::of(Function{function});
  return Value::undefined(e.text, budget_);
}

// A repeated key keeps its first place and its last value, as in Python.
Value Interpreter::dict(const Expression& e, const Scope& scope) {
  std::vector<std::pair<std::string, Value>> items;
  for (size_t i = 0; i < e.in.size(); i += 2) {
    Value key = value(*e.in[i], scope);
    if (!key.is_text())
      fault(DS_ERROR_UNSUPPORTED, "a key that is a {} is unsupported", key.kind());
    Value one = value(*e.in[i + 1], scope);
    if (one.is_space()) fault(DS_ERROR_UNSUPPORTED, "a namespace in a dict is unsupported");
    budget_.memory(key.text().size() + sizeof(Value) + sizeof(std::string));
    // Keys are found by a linear search, which is paid for.
    budget_.work(items.size() / 8);
    auto known = std::ranges::find_if(items, [&](const auto& o) { return o.first == key.text(); });
    if (known != items.end()) {
      known->second = std::move(one);
    } else {
      items.emplace_back(key.text(), std::move(one));
    }
  }
  return Value::dict(std::move(items));
}

// Each operand is evaluated once, and none after the first false comparison.
Value Interpreter::chain(const Expression& e, const Scope& scope) {
  Value left = value(*e.in[0], scope);
  for (size_t i = 0; i < e.words.size(); ++i) {
    Value right = value(*e.in[i + 1], scope);
    if (!compare(e.words[i], left, right, budget_)) return Value::of(false);
    left = std::move(right);
  }
  return Value::of(true);
}

// Bounds that are not given become None, which slice() treats as not given.
Value Interpreter::sliced(const Expression& e, const Scope& scope) {
  std::array<Value, 4> parts;
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i] = e.in[i] ? value(*e.in[i], scope) : Value::none();
  }
  return slice(parts[0], parts[1], parts[2], parts[3], budget_);
}

Values Interpreter::all(const Expression& e, const Scope& scope, size_t from) {
  Values out;
  for (size_t i = from; i < e.in.size(); ++i) {
    out.push_back(value(*e.in[i], scope));
    if (out.back().is_space())
      fault(DS_ERROR_UNSUPPORTED, "a namespace in a list or call is unsupported");
  }
  return out;
}

// Index 0 of `in` is the callee or the value; arguments follow.
Arguments Interpreter::arguments(const Expression& e, const Scope& scope) {
  Values placed = all(e, scope, 1);
  std::vector<std::pair<std::string, Value>> named;
  for (const auto& [key, one] : e.named) {
    named.emplace_back(key, value(*one, scope));
    if (named.back().second.is_space())
      fault(DS_ERROR_UNSUPPORTED, "a namespace in a call is unsupported");
  }
  return {std::move(placed), std::move(named)};
}

Value Interpreter::call(const Expression& e, const Scope& scope) {
  const Expression& callee = *e.in[0];
  // A method call is resolved before the attribute, since a key may have the name of a method.
  if (callee.kind == NodeKind::attribute) {
    Value object = value(*callee.in[0], scope);
    if (object.is_loop()) return loop_method(object.loop(), callee.text, arguments(e, scope));
    if (is_method(object, callee.text))
      return call_method(object, callee.text, arguments(e, scope), budget_);
    if (object.is_text() || object.is_list()) {
      fault(DS_ERROR_CONFIG, "a {} has no method '{}'", object.kind(), callee.text);
    }
  }
  Value found = value(callee, scope);
  if (found.is_macro()) return call_macro(found.macro(), arguments(e, scope));
  if (found.is_function())
    return call_function(found.function().name, arguments(e, scope), budget_);
  require_defined(found);
  fault(DS_ERROR_CONFIG, "a {} cannot be called", found.kind());
}

// A macro can use its parameters and the names of the top level: the caller's variables and those
// that the template sets there.
Value Interpreter::call_macro(const Macro& macro, const Arguments& given) {
  Arguments arguments = given;
  arguments.expect("macro " + macro.name, {macro.parameters.begin(), macro.parameters.end()});
  Scope scope{&root_};
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    Value one = arguments.value(i, Value::undefined(macro.parameters[i], budget_));
    if (!arguments.has(i) && macro.defaults[i]) one = value(*macro.defaults[i], scope);
    scope.set(macro.parameters[i], std::move(one));
  }
  budget_.memory(sizeof(Scope) + macro.parameters.size() * sizeof(Value));
  return Value::paid(captured(*macro.body, scope));
}

}  // namespace ds::text::jinja
