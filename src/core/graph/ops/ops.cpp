#include "core/graph/ops.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/error.h"
#include "core/base/suggest.h"
#include "core/graph/ops/rules.h"

namespace ds {
namespace {

std::vector<OpDef> build_table() {
  std::vector<OpDef> table;
  add_embedding_ops(table);
  add_linear_ops(table);
  add_norm_ops(table);
  add_activation_ops(table);
  add_gate_ops(table);
  add_attention_ops(table);
  add_rope_ops(table);
  add_router_ops(table);
  add_elementwise_ops(table);
  add_loss_ops(table);
  return table;
}

// Rows of add_op: a deque leaves them where they are.
struct Added {
  std::mutex lock;
  std::deque<OpDef> rows;
};

Added& added() {
  static Added added;
  return added;
}

}  // namespace

const std::vector<OpDef>& op_table() {
  static const std::vector<OpDef> table = build_table();
  return table;
}

const OpDef* find_op(std::string_view name) {
  static const auto by_name = [] {
    std::unordered_map<std::string_view, const OpDef*> rows;
    for (const OpDef& row : op_table()) rows.emplace(row.name, &row);
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
  require(!find_op(row.name), "an operation '{}' exists already", row.name);
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

std::vector<TensorType> infer_types(const Graph& graph, std::string_view name, std::span<const ValueId> in,
                                    const Attrs& attrs) {
  const OpDef& row = op(name);
  int count = static_cast<int>(in.size());
  require(count >= row.min_inputs && count <= row.max_inputs, "{}: takes {} to {} operands, got {}", name,
          row.min_inputs, row.max_inputs, count);
  std::vector<TensorType> types;
  for (size_t i = 0; i < in.size(); ++i) {
    require(graph.values.has(in[i]), "{}: operand {} must be a value from 0 to {}, got {}", name, i,
            static_cast<int64_t>(graph.values.size()) - 1, in[i]);
    types.push_back(graph.type(in[i]));
    require(
        types.back().shape.numel(graph.bound) > 0,
        "{}: operand {} must have at least 1 element, got {}: an empty parameter takes part in no operation",
        name, i, types.back().text());
  }
  std::vector<std::string> known = row.attrs;
  known.insert(known.end(), row.optional.begin(), row.optional.end());
  for (const auto& item : attrs.items()) {
    require(std::find(known.begin(), known.end(), item.first) != known.end(),
            "{}: attribute '{}' is not known{}", name, item.first, did_you_mean(item.first, known));
  }
  for (const std::string& needed : row.attrs) {
    require(attrs.has(needed), "{}: attribute '{}' is missing, got '{}'", name, needed, attrs.print());
  }
  return row.infer(types, attrs);
}

}  // namespace ds
