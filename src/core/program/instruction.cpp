// The table of instructions. Passes, executors, the engine and reports ask a row what an
// instruction is; none of them knows instructions by name. A row is plain data, so that a new
// instruction is one row here, its kernel (or its case in exec/instruction_launch.cpp) and the
// place that emits it.
#include "core/program/instruction.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <mutex>

#include "core/base/error.h"
#include "core/base/suggest.h"

namespace ds {
namespace {

constexpr OperandRule reads(Role role, int32_t least = 1, int32_t most = 1) {
  return {role, Access::read, false, least, most};
}
constexpr OperandRule writes(Role role, int32_t most = 1) {
  return {role, Access::write, false, 1, most};
}
constexpr OperandRule writes_or_updates(Role role, int32_t least = 1) {
  return {role, Access::write, true, least};
}
constexpr OperandRule updates(Role role, int32_t least = 1, int32_t most = 1) {
  return {role, Access::update, false, least, most};
}
constexpr int32_t kAny = std::numeric_limits<int32_t>::max();

template <int kFlops>
double flops(const Attrs&) {
  return kFlops;
}
double accumulate_flops(const Attrs& attrs) { return static_cast<double>(attrs.integer("beta")); }
// The exact order of docs/reference/ops.md, counted.
double adamw_flops(const Attrs& attrs) { return attrs.integer("l2") != 0 ? 17 : 16; }
// Beside the arithmetic of adamw, codes are made and read by shifts.
double adamw_codes_flops(const Attrs& attrs) { return attrs.integer("l2") != 0 ? 16 : 15; }
double sgd_flops(const Attrs& attrs) { return attrs.integer("nesterov") != 0 ? 9 : 7; }
// With an error: two sums and a difference, three products.
double quantize_flops(const Attrs& attrs) { return attrs.has("err_beta") ? 8 : 2; }
// Of a byte of codes, which is one element or two.
double dequantize_flops(const Attrs& attrs) {
  return 8 / static_cast<double>(attrs.integer("bits"));
}
double dequantize_sum_flops(const Attrs& attrs) { return 2 * dequantize_flops(attrs); }

InstrDef kernel(const char* name, Op op, Kind kind, std::vector<OperandRule> operands,
                double (*cost)(const Attrs&)) {
  InstrDef row{.name = name, .op = op, .kind = kind, .operands = std::move(operands)};
  row.flops = cost;
  row.follows_state = kind == Kind::update;
  return row;
}

InstrDef following(InstrDef row) {
  row.follows_state = true;
  return row;
}

InstrDef optimizer(const char* name, Op op, int32_t states, double (*cost)(const Attrs&)) {
  return kernel(name, op, Kind::update,
                {reads(Role::grad), reads(Role::scalars), updates(Role::master),
                 updates(Role::state, states, states), writes_or_updates(Role::param)},
                cost);
}

InstrDef move(const char* name, Op op, Kind kind, Queue queue, bool starts_early = false) {
  InstrDef row{.name = name, .op = op, .kind = kind, .queue = queue};
  row.operands = {reads(Role::source), writes(Role::target)};
  row.starts_early = starts_early;
  return row;
}

InstrDef reduction(InstrDef row) {
  row.reduces = true;
  return row;
}

InstrDef decision(const char* name, Op op, Role read) {
  InstrDef row{.name = name, .op = op, .kind = Kind::decision};
  row.operands = {reads(read), updates(Role::scalars)};
  row.follows_state = true;
  return row;
}

InstrDef mean_gradients_row() {
  InstrDef row{.name = "mean_gradients", .op = Op::mean_gradients, .kind = Kind::decision};
  row.operands = {updates(Role::scalars)};
  row.follows_state = true;
  return row;
}

// Logarithm and cosine in f64 differ between math libraries, so that values are drawn on the host
// whatever the device.
InstrDef init_param_row() {
  InstrDef row{
      .name = "init_param", .op = Op::init_param, .kind = Kind::state, .queue = Queue::host};
  row.operands = {reads(Role::scalars), writes_or_updates(Role::target)};
  row.flops = flops<0>;
  return row;
}

InstrDef host_event(const char* name, Op op, OperandRule operand) {
  return {.name = name, .op = op, .kind = Kind::event, .operands = {operand}};
}

InstrDef quantize_row() {
  InstrDef row =
      kernel("quantize", Op::quantize, Kind::state,
             {reads(Role::source), updates(Role::error, 0), writes(Role::target)}, quantize_flops);
  row.encodes = row.starts_early = true;
  return row;
}

InstrDef pack_rows_row() {
  InstrDef row = kernel(
      "pack_rows", Op::pack_rows, Kind::state,
      {reads(Role::source), reads(Role::ids), writes(Role::rows), writes(Role::numbers)}, flops<0>);
  row.selects = true;
  return row;
}

// In the order of Op.
InstrDef lamb_moments_row() {
  return kernel("lamb_moments", Op::lamb_moments, Kind::update,
                {reads(Role::grad), reads(Role::scalars), reads(Role::master),
                 updates(Role::state, 2, 2), writes_or_updates(Role::norms)},
                flops<18>);
}

InstrDef lamb_row() {
  return kernel("lamb", Op::lamb, Kind::update,
                {reads(Role::state), reads(Role::state), reads(Role::source), reads(Role::scalars),
                 updates(Role::master), writes_or_updates(Role::param)},
                flops<9>);
}

InstrDef local_adam_row() {
  return kernel("local_adam", Op::local_adam, Kind::update,
                {reads(Role::grad), reads(Role::state), reads(Role::scalars), reads(Role::master),
                 updates(Role::state, 2, 2), writes_or_updates(Role::param, 0)},
                flops<12>);
}

InstrDef synced_adam_row() {
  return kernel("synced_adam", Op::synced_adam, Kind::update,
                {reads(Role::state), reads(Role::scalars), updates(Role::state, 2, 2),
                 updates(Role::master), writes_or_updates(Role::param)},
                flops<5>);
}

std::vector<InstrDef> build_table() {
  using enum Op;
  using enum Kind;
  const std::vector<OperandRule> one_to_one{reads(Role::source), writes(Role::target)};
  return {
      following(kernel("zero", zero, state, {writes(Role::target, kAny)}, flops<0>)),
      following(kernel("accumulate", accumulate, state,
                       {reads(Role::source), writes_or_updates(Role::sum)}, accumulate_flops)),
      init_param_row(),
      following(kernel("granule_norms", granule_norms, state,
                       {reads(Role::source), writes(Role::norms)}, flops<2>)),
      quantize_row(),
      kernel("dequantize", dequantize, state, one_to_one, dequantize_flops),
      reduction(kernel("dequantize_sum", dequantize_sum, state, one_to_one, dequantize_sum_flops)),
      pack_rows_row(),
      reduction(kernel("sum_rows", sum_rows, state,
                       {reads(Role::rows), reads(Role::numbers), writes(Role::target)}, flops<1>)),
      following(kernel("sum_norms", sum_norms, state, {reads(Role::norms), writes(Role::norms)},
                       flops<1>)),
      kernel("add_error", add_error, state,
             {reads(Role::source), reads(Role::scalars), updates(Role::error), writes(Role::norms)},
             flops<3>),
      reduction(kernel(
          "mean_signs", mean_signs, state,
          {reads(Role::source), reads(Role::scalars), updates(Role::error), writes(Role::norms)},
          flops<8>)),
      kernel("pack_signs", pack_signs, state,
             {reads(Role::norms), reads(Role::scalars), updates(Role::error), writes(Role::target)},
             flops<2 * 256>),
      kernel("unpack_signs", unpack_signs, state,
             {reads(Role::source), reads(Role::scalars), updates(Role::target)}, flops<0>),
      optimizer("adamw", adamw, 2, adamw_flops),
      optimizer("sgd", sgd, 1, sgd_flops),
      optimizer("lion", lion, 1, flops<9>),
      optimizer("adagrad", adagrad, 1, flops<9>),
      // Of LAMB: moments and norms of what they make of a step, the ratios of the norms, the step.
      lamb_moments_row(),
      following(kernel("lamb_ratios", lamb_ratios, state,
                       {reads(Role::norms), updates(Role::state, 0), writes(Role::target)},
                       flops<1>)),
      lamb_row(),
      kernel("momentum", momentum, update,
             {reads(Role::grad), reads(Role::scalars), updates(Role::state)}, flops<4>),
      kernel("frozen_adam", frozen_adam, update,
             {reads(Role::state, 2, 2), reads(Role::scalars), updates(Role::master),
              writes_or_updates(Role::param)},
             flops<6>),
      // Of 0/1 Adam: what is compressed before the freeze, and steps behind it.
      following(kernel("own_gradient", own_gradient, state,
                       {reads(Role::grad), reads(Role::scalars), writes(Role::target)}, flops<1>)),
      local_adam_row(),
      synced_adam_row(),
      // Of 1-bit LAMB behind the freeze.
      kernel("scale_momentum", scale_momentum, state,
             {reads(Role::source), reads(Role::scalars), reads(Role::source),
              writes_or_updates(Role::target)},
             flops<1>),
      kernel("lamb_scales", lamb_scales, state, {reads(Role::norms), writes(Role::target, 2)},
             flops<1>),
      kernel("frozen_lamb_moments", frozen_lamb_moments, update,
             {reads(Role::state, 3, 3), reads(Role::scalars), reads(Role::master),
              updates(Role::state), writes_or_updates(Role::norms)},
             flops<18>),
      following(kernel("frozen_lamb_ratios", frozen_lamb_ratios, state,
                       {reads(Role::norms), reads(Role::scalars), reads(Role::source),
                        updates(Role::state), writes(Role::target)},
                       flops<1>)),
      optimizer("adamw_codes", adamw_codes, 4, adamw_codes_flops),
      // Of Muon: momentum and what the step is made of, matrices of norm 1, Newton-Schulz's sums of
      // products, the step.
      kernel("muon_momentum", muon_momentum, update,
             {reads(Role::grad), reads(Role::scalars), updates(Role::state),
              writes_or_updates(Role::target)},
             flops<7>),
      kernel("unit_matrix", unit_matrix, state, one_to_one, flops<3>),
      kernel("blend", blend, state,
             {reads(Role::source), reads(Role::source, 0), writes(Role::target)}, flops<3>),
      kernel("muon", muon, update,
             {reads(Role::source), reads(Role::scalars), updates(Role::master),
              writes_or_updates(Role::param)},
             flops<3>),
      // Of compressed gradients.
      kernel(
          "pack_top", pack_top, state,
          {reads(Role::source), reads(Role::scalars), updates(Role::error), writes(Role::target)},
          flops<2>),
      reduction(
          kernel("sum_top", sum_top, state, {reads(Role::source), writes(Role::target)}, flops<1>)),
      mean_gradients_row(),
      move("all_gather", all_gather, collective, Queue::comm, true),
      reduction(move("reduce_scatter", reduce_scatter, collective, Queue::comm)),
      reduction(move("all_reduce", all_reduce, collective, Queue::comm)),
      move("all_to_all", all_to_all, collective, Queue::comm),
      move("fetch", fetch, copy, Queue::copy, true),
      move("store", store, copy, Queue::copy),
      move("load", load, file, Queue::read, true),
      move("save", save, file, Queue::write),
      ::ds::decision("clip", clip, Role::norms),
      ::ds::decision("losses", losses, Role::source),
      host_event("lease", lease, reads(Role::param, 1, kAny)),
      host_event("grad_view", grad_view, {Role::grad, Access::write, true, 1, kAny}),
      host_event("grad", grad, {Role::grad, Access::write, true, 1, kAny}),
      host_event("release", release, reads(Role::param, 1, kAny)),
  };
}

// Rows are only ever added, and a deque leaves them where they are.
struct Table {
  const std::vector<InstrDef> built_in = build_table();
  std::mutex lock;  // of what follows
  std::deque<InstrDef> more;
  std::map<std::string, const InstrDef*, std::less<>> by_name;

  Table() {
    for (const InstrDef& row : built_in) by_name.emplace(row.name, &row);
  }
  const InstrDef& add(InstrDef row) {
    more.push_back(std::move(row));
    by_name.emplace(more.back().name, &more.back());
    return more.back();
  }
};

Table& table() {
  static Table& table = *new Table;  // never ends: threads may look while the program exits
  return table;
}

}  // namespace

const InstrDef& instruction(Op op) {
  ensure(op < Op::graph, "operation {} is not one of the table", static_cast<int>(op));
  return table().built_in[static_cast<size_t>(op)];
}

const InstrDef* find_instruction(std::string_view name) {
  Table& t = table();
  std::lock_guard hold(t.lock);
  if (auto known = t.by_name.find(name); known != t.by_name.end()) return known->second;
  const OpDef* op = find_op(name);
  if (!op) return nullptr;
  InstrDef row{.name = op->name, .op = Op::graph, .kind = Kind::model};
  row.follows_state = op->follows_state;
  row.graph = op;
  return &t.add(std::move(row));
}

const InstrDef& instruction(std::string_view name) {
  if (const InstrDef* row = find_instruction(name)) return *row;
  std::vector<std::string> names;
  for (const InstrDef* row : instruction_table()) names.push_back(row->name);
  for (const OpDef& row : op_table()) names.push_back(row.name);
  raise(DS_ERROR_INVALID_ARGUMENT, "no instruction is named '{}'{}", name,
        did_you_mean(name, names));
}

std::vector<const InstrDef*> instruction_table() {
  Table& t = table();
  std::lock_guard hold(t.lock);
  std::vector<const InstrDef*> out;
  for (const InstrDef& row : t.built_in) out.push_back(&row);
  for (const InstrDef& row : t.more) {
    if (!row.graph) out.push_back(&row);
  }
  return out;
}

const InstrDef& add_instruction(InstrDef row) {
  require(!find_instruction(row.name), "an instruction '{}' exists already", row.name);
  Table& t = table();
  std::lock_guard hold(t.lock);
  row.op = Op::added;
  return t.add(std::move(row));
}

std::vector<OperandRule> operand_rules(const InstrDef& row, size_t count) {
  size_t least = 0;
  for (const OperandRule& rule : row.operands) least += static_cast<size_t>(rule.least);
  size_t more = count < least ? 0 : count - least;
  std::vector<OperandRule> out;
  for (const OperandRule& rule : row.operands) {
    size_t times = std::min(static_cast<size_t>(rule.most), static_cast<size_t>(rule.least) + more);
    more -= times - static_cast<size_t>(rule.least);
    out.insert(out.end(), times, rule);
  }
  require(out.size() == count, "{}: takes {} operands, got {}", row.name, out.size(), count);
  return out;
}

}  // namespace ds
