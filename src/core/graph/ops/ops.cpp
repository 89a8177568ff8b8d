// The op table: rows of all families in a fixed order, plus rows added at run time. The table is
// never destroyed, since threads may look up an operation while the process exits. Rows are never
// changed, and looking up a row of the library takes no lock.
#include "core/graph/ops.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "core/base/contains.h"
#include "core/base/error.h"
#include "core/base/suggest.h"
#include "core/graph/ops/rules.h"

namespace ds {
namespace {

std::vector<OpDef> build_table() {
  std::vector<OpDef> table;
  for (AddOps* add :
       {add_embedding_ops, add_linear_ops, add_norm_ops, add_activation_ops, add_gate_ops,
        add_attention_ops, add_rope_ops, add_softmax_ops, add_router_ops, add_elementwise_ops,
        add_loss_ops, add_preference_ops, add_dora_ops})
    add(table);
  return table;
}

// Rows that are not in the schema: operations by callback, and rows of add_op(). A deque keeps them
// at their addresses.
struct Added {
  std::mutex lock;
  std::deque<OpDef> rows;

  Added() { add_custom_ops(rows); }
};

Added& added() {
  // The object is never destroyed, since threads may look up an operation while the process exits.
  static Added& added = *new Added;
  return added;
}

// Describes the numbers of operands: "1 to 3", "3 or 5".
std::string counts_of(const OpDef& row) {
  std::string out;
  for (const OpForm& form : row.forms) {
    if (!out.empty()) out += " or ";
    out += form.least() == form.most() ? fmt::format("{}", form.least())
                                       : fmt::format("{} to {}", form.least(), form.most());
  }
  return out;
}

// Describes a value: "integer 3", "text 'erf'".
std::string described(const Attrs::Value& value) {
  if (const auto* integer = std::get_if<int64_t>(&value))
    return fmt::format("integer {}", *integer);
  if (const auto* real = std::get_if<double>(&value)) return fmt::format("number {}", *real);
  if (const auto* text = std::get_if<std::string>(&value)) return fmt::format("text '{}'", *text);
  return fmt::format("list [{}]", fmt::join(std::get<std::vector<int64_t>>(value), ","));
}

void check_kind(const OpDef& row, const AttrDef& attr, const Attrs::Value& value) {
  bool integer = std::holds_alternative<int64_t>(value);
  const auto* text = std::get_if<std::string>(&value);
  switch (attr.kind) {
    case AttrKind::integer:
      return require(integer, "{}: attribute '{}' must be an integer, got {}", row.name, attr.name,
                     described(value));
    case AttrKind::number:
      return require(integer || std::holds_alternative<double>(value),
                     "{}: attribute '{}' must be a number, got {}", row.name, attr.name,
                     described(value));
    case AttrKind::text:
      return require(text != nullptr, "{}: attribute '{}' must be a text, got {}", row.name,
                     attr.name, described(value));
    case AttrKind::one_of:
      return require(text && contains(attr.words, *text),
                     "{}: attribute '{}' must be one of {}, got {}", row.name, attr.name,
                     fmt::join(attr.words, " "), described(value));
    case AttrKind::flag:
      return require(integer && (std::get<int64_t>(value) == 0 || std::get<int64_t>(value) == 1),
                     "{}: attribute '{}' must be 0 or 1, got {}", row.name, attr.name,
                     described(value));
  }
}

// Checks the attributes of a node. Unknown names are refused, so that a misspelt attribute does not
// silently keep its default.
void check_attrs(const OpDef& row, const Attrs& attrs) {
  for (const auto& [name, value] : attrs.items()) {
    auto known = std::ranges::find_if(
        row.attrs, [&name = name](const AttrDef& attr) { return attr.name == name; });
    if (known != row.attrs.end()) {
      check_kind(row, *known, value);
      continue;
    }
    std::vector<std::string> names;
    for (const AttrDef& attr : row.attrs) names.push_back(attr.name);
    raise(DS_ERROR_INVALID_ARGUMENT, "{}: attribute '{}' is not known{}", row.name, name,
          did_you_mean(name, names));
  }
  for (const AttrDef& attr : row.attrs) {
    require(!attr.required || attrs.has(attr.name),
            "{}: attribute '{}' is missing, got attributes '{}'", row.name, attr.name,
            attrs.print());
  }
}

}  // namespace

const std::vector<OpDef>& op_table() {
  static const auto& table = *new auto(build_table());
  return table;
}

const OpDef* find_op(std::string_view name) {
  // The index is built on the first call. C++ initializes a static variable only once, even with
  // several threads.
  static const auto& by_name = *[] {
    auto* rows = new std::unordered_map<std::string_view, const OpDef*>;
    for (const OpDef& row : op_table()) rows->emplace(row.name, &row);
    return rows;
  }();
  if (auto known = by_name.find(name); known != by_name.end()) return known->second;
  Added& more = added();
  std::lock_guard hold(more.lock);
  for (const OpDef& row : more.rows) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

const OpDef& add_op(OpDef row) {
  require(!find_op(row.name), "an operation '{}' is already registered", row.name);
  require(row.infer && row.flops, "operation '{}' must say its results and its cost", row.name);
  Added& more = added();
  std::lock_guard hold(more.lock);
  return more.rows.emplace_back(std::move(row));
}

const OpDef& op(std::string_view name) {
  const OpDef* row = find_op(name);
  if (row) return *row;
  std::vector<std::string> names;
  for (const OpDef& known : op_table()) names.push_back(known.name);
  raise(DS_ERROR_INVALID_ARGUMENT, "op '{}' is not known{}", name, did_you_mean(name, names));
}

int OpForm::least() const {
  int sum = 0;
  for (const OperandDef& operand : operands) sum += operand.least;
  return sum;
}

int OpForm::most() const {
  int sum = 0;
  for (const OperandDef& operand : operands) sum += operand.most;
  return sum;
}

// Operands beyond the smallest number are assigned to optional and repeated definitions from left
// to right.
std::vector<const OperandDef*> OpForm::places(size_t count) const {
  std::vector<const OperandDef*> out;
  int more = static_cast<int>(count) - least();
  for (const OperandDef& operand : operands) {
    int extra = std::clamp(more, 0, operand.most - operand.least);
    more -= extra;
    out.insert(out.end(), static_cast<size_t>(operand.least + extra), &operand);
  }
  return out;
}

const OpForm* OpDef::form(size_t count) const {
  for (const OpForm& form : forms) {
    if (static_cast<int>(count) >= form.least() && static_cast<int>(count) <= form.most())
      return &form;
  }
  return nullptr;
}

size_t OpDef::results(size_t count) const {
  size_t sum = 0;
  if (const OpForm* taken = form(count)) {
    for (const OperandDef& result : taken->results) sum += static_cast<size_t>(result.most);
  }
  return sum;
}

const char* attr_kind_name(AttrKind kind) {
  switch (kind) {
    case AttrKind::integer:
      return "integer";
    case AttrKind::number:
      return "number";
    case AttrKind::text:
      return "text";
    case AttrKind::one_of:
      return "one_of";
    case AttrKind::flag:
      return "flag";
  }
  return "";
}

std::vector<TensorType> infer_types(const Graph& graph, std::string_view name,
                                    std::span<const ValueId> in, const Attrs& attrs) {
  const OpDef& row = op(name);
  require(row.form(in.size()) != nullptr, "{}: takes {} operands, got {}", name, counts_of(row),
          in.size());
  std::vector<TensorType> types;
  for (size_t i = 0; i < in.size(); ++i) {
    require(graph.values.size() > 0,
            "{}: operand {} must be a value of the graph, which has none yet, got {}", name, i,
            in[i]);
    require(graph.values.has(in[i]), "{}: operand {} must be a value from 0 to {}, got {}", name, i,
            static_cast<int64_t>(graph.values.size()) - 1, in[i]);
    types.push_back(graph.type(in[i]));
    require(types.back().shape.numel(graph.bound) > 0,
            "{}: operand {} must have at least 1 element, got {}: an empty parameter cannot be an "
            "operand",
            name, i, types.back().text());
  }
  check_attrs(row, attrs);
  return row.infer(types, attrs);
}

}  // namespace ds
