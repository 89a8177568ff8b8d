// The table of instructions. Passes, executors, the engine and reports read an instruction's
// properties from its row and do not compare names. A row is plain data: a new instruction needs
// one row here, a kernel (or a case in exec/instruction_launch.cpp) and code that emits it.
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

constexpr OperandRule reads(Role role = Role::data, int32_t least = 1, int32_t most = 1) {
  return {role, Access::read, false, least, most};
}
constexpr OperandRule writes(Role role = Role::data, int32_t most = 1) {
  return {role, Access::write, false, 1, most};
}
constexpr OperandRule writes_or_updates(Role role = Role::data, int32_t least = 1) {
  return {role, Access::write, true, least};
}
constexpr OperandRule updates(Role role = Role::data, int32_t least = 1, int32_t most = 1) {
  return {role, Access::update, false, least, most};
}
constexpr int32_t kAny = std::numeric_limits<int32_t>::max();

template <int kFlops>
double flops(const Attrs&) {
  return kFlops;
}
double accumulate_flops(const Attrs& attrs) { return static_cast<double>(attrs.integer("beta")); }
// Counts the operations of the formula in docs/reference/ops.md.
double adamw_flops(const Attrs& attrs) { return attrs.integer("l2") != 0 ? 17 : 16; }
// Encoding and decoding the states takes shifts, which do not count as flops.
double adamw_codes_flops(const Attrs& attrs) { return attrs.integer("l2") != 0 ? 16 : 15; }
double sgd_flops(const Attrs& attrs) { return attrs.integer("nesterov") != 0 ? 9 : 7; }
// The error feedback adds six operations: two additions, a subtraction and three products.
double quantize_flops(const Attrs& attrs) { return attrs.has("err_beta") ? 8 : 2; }
// Returns the flops per byte of codes. A byte holds one or two elements.
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

// Marks a row that runs on host memory if its operands are there.
InstrDef following(InstrDef row) {
  row.follows_state = true;
  return row;
}

// Most optimizers have these operands: gradient, scalars, master, states, parameter.
InstrDef optimizer(const char* name, Op op, int32_t states, double (*cost)(const Attrs&)) {
  return kernel(name, op, Kind::update,
                {reads(), reads(Role::scalars), updates(), updates(Role::state, states, states),
                 writes_or_updates()},
                cost);
}

InstrDef move(const char* name, Op op, Kind kind, Queue queue, bool starts_early = false) {
  InstrDef row{.name = name, .op = op, .kind = kind, .queue = queue};
  row.operands = {reads(), writes()};
  row.starts_early = starts_early;
  return row;
}

InstrDef reduction(InstrDef row) {
  row.reduces = true;
  return row;
}

InstrDef decision(const char* name, Op op) {
  InstrDef row{.name = name, .op = op, .kind = Kind::decision};
  row.operands = {reads(), updates(Role::scalars)};
  row.follows_state = true;
  return row;
}

InstrDef mean_gradients_row() {
  InstrDef row{.name = "mean_gradients", .op = Op::mean_gradients, .kind = Kind::decision};
  row.operands = {updates(Role::scalars)};
  row.follows_state = true;
  return row;
}

// Values are drawn on the host for every device, because logarithm and cosine in f64 differ between
// math libraries.
InstrDef init_param_row() {
  InstrDef row{
      .name = "init_param", .op = Op::init_param, .kind = Kind::state, .queue = Queue::host};
  row.operands = {reads(Role::scalars), writes_or_updates()};
  row.flops = flops<0>;
  return row;
}

InstrDef host_event(const char* name, Op op, OperandRule operand) {
  return {.name = name, .op = op, .kind = Kind::event, .operands = {operand}};
}

InstrDef quantize_row() {
  InstrDef row = kernel("quantize", Op::quantize, Kind::state,
                        {reads(), updates(Role::data, 0), writes()}, quantize_flops);
  row.encodes = row.starts_early = true;
  return row;
}

InstrDef pack_rows_row() {
  InstrDef row = kernel("pack_rows", Op::pack_rows, Kind::state,
                        {reads(), reads(), writes(), writes()}, flops<0>);
  row.selects = true;
  return row;
}

// Rows that are too long for the lists below, in the order of Op.
// The arithmetic of an update by the host's callback is unknown and counts as none.
InstrDef callback_row() {
  return kernel("callback", Op::callback, Kind::update,
                {reads(), reads(Role::scalars), updates(), updates(Role::state, 0, kMostOwnStates),
                 writes_or_updates()},
                flops<0>);
}

InstrDef lamb_moments_row() {
  return kernel(
      "lamb_moments", Op::lamb_moments, Kind::update,
      {reads(), reads(Role::scalars), reads(), updates(Role::state, 2, 2), writes_or_updates()},
      flops<18>);
}

InstrDef lamb_row() {
  return kernel("lamb", Op::lamb, Kind::update,
                {reads(Role::state), reads(Role::state), reads(), reads(Role::scalars), updates(),
                 writes_or_updates()},
                flops<9>);
}

InstrDef local_adam_row() {
  return kernel("local_adam", Op::local_adam, Kind::update,
                {reads(), reads(Role::state), reads(Role::scalars), reads(),
                 updates(Role::state, 2, 2), writes_or_updates(Role::data, 0)},
                flops<12>);
}

InstrDef synced_adam_row() {
  return kernel("synced_adam", Op::synced_adam, Kind::update,
                {reads(Role::state), reads(Role::scalars), updates(Role::state, 2, 2), updates(),
                 writes_or_updates()},
                flops<5>);
}

// Rows for tensors that ZeRO keeps and for data that is compressed for transfer.
std::vector<InstrDef> state_rows() {
  using enum Op;
  using enum Kind;
  const std::vector<OperandRule> one_to_one{reads(), writes()};
  return {
      following(kernel("zero", zero, state, {writes(Role::data, kAny)}, flops<0>)),
      following(kernel("accumulate", accumulate, state, {reads(), writes_or_updates(Role::sum)},
                       accumulate_flops)),
      init_param_row(),
      following(kernel("granule_norms", granule_norms, state, {reads(), writes()}, flops<2>)),
      quantize_row(),
      kernel("dequantize", dequantize, state, one_to_one, dequantize_flops),
      reduction(kernel("dequantize_sum", dequantize_sum, state, one_to_one, dequantize_sum_flops)),
      pack_rows_row(),
      reduction(kernel("sum_rows", sum_rows, state, {reads(), reads(), writes()}, flops<1>)),
      following(kernel("sum_norms", sum_norms, state, {reads(), writes()}, flops<1>)),
      kernel("add_error", add_error, state, {reads(), reads(Role::scalars), updates(), writes()},
             flops<3>),
      reduction(kernel("mean_signs", mean_signs, state,
                       {reads(), reads(Role::scalars), updates(), writes()}, flops<8>)),
      kernel("pack_signs", pack_signs, state, {reads(), reads(Role::scalars), updates(), writes()},
             flops<2 * 256>),
      kernel("unpack_signs", unpack_signs, state, {reads(), reads(Role::scalars), updates()},
             flops<0>),
  };
}

// Rows of optimizers. The update of most optimizers is one instruction; that of some is a sequence.
std::vector<InstrDef> optimizer_rows() {
  using enum Op;
  using enum Kind;
  return {
      optimizer("adamw", adamw, 2, adamw_flops),
      optimizer("sgd", sgd, 1, sgd_flops),
      optimizer("lion", lion, 1, flops<9>),
      optimizer("adagrad", adagrad, 1, flops<9>),
      callback_row(),
      // LAMB computes first the moments and the norms of the resulting step, then the ratios of
      // norms, then the step.
      lamb_moments_row(),
      following(kernel("lamb_ratios", lamb_ratios, state,
                       {reads(), updates(Role::state, 0), writes()}, flops<1>)),
      lamb_row(),
      kernel("momentum", momentum, update, {reads(), reads(Role::scalars), updates(Role::state)},
             flops<4>),
      kernel("frozen_adam", frozen_adam, update,
             {reads(Role::state, 2, 2), reads(Role::scalars), updates(), writes_or_updates()},
             flops<6>),
      // 0/1 Adam: own_gradient computes the gradient that is compressed before the freeze; the
      // other rows are the steps after the freeze.
      following(kernel("own_gradient", own_gradient, state,
                       {reads(), reads(Role::scalars), writes()}, flops<1>)),
      local_adam_row(),
      synced_adam_row(),
      // 1-bit LAMB after the freeze.
      kernel("scale_momentum", scale_momentum, state,
             {reads(), reads(Role::scalars), reads(), writes_or_updates()}, flops<1>),
      kernel("lamb_scales", lamb_scales, state, {reads(), writes(Role::data, 2)}, flops<1>),
      kernel("frozen_lamb_moments", frozen_lamb_moments, update,
             {reads(Role::state, 3, 3), reads(Role::scalars), reads(), updates(Role::state),
              writes_or_updates()},
             flops<18>),
      following(kernel("frozen_lamb_ratios", frozen_lamb_ratios, state,
                       {reads(), reads(Role::scalars), reads(), updates(Role::state), writes()},
                       flops<1>)),
      optimizer("adamw_codes", adamw_codes, 4, adamw_codes_flops),
      // Muon computes first the momentum and the matrix for the step, then scales this matrix to
      // norm 1, then runs the Newton-Schulz iteration, whose sums `blend` computes, and then the
      // step.
      kernel("muon_momentum", muon_momentum, update,
             {reads(), reads(Role::scalars), updates(Role::state), writes_or_updates()}, flops<7>),
      kernel("unit_matrix", unit_matrix, state, {reads(), writes()}, flops<3>),
      kernel("blend", blend, state, {reads(), reads(Role::data, 0), writes()}, flops<3>),
      kernel("muon", muon, update, {reads(), reads(Role::scalars), updates(), writes_or_updates()},
             flops<3>),
  };
}

// Rows for compressed gradients, moves of bytes, decisions, and events of the host in delegate
// mode.
std::vector<InstrDef> other_rows() {
  using enum Op;
  using enum Kind;
  return {
      // Compression of gradients to their largest elements.
      kernel("pack_top", pack_top, state, {reads(), reads(Role::scalars), updates(), writes()},
             flops<2>),
      reduction(kernel("sum_top", sum_top, state, {reads(), writes()}, flops<1>)),
      mean_gradients_row(),
      move("all_gather", all_gather, collective, Queue::comm, true),
      reduction(move("reduce_scatter", reduce_scatter, collective, Queue::comm)),
      reduction(move("all_reduce", all_reduce, collective, Queue::comm)),
      move("all_to_all", all_to_all, collective, Queue::comm),
      move("fetch", fetch, copy, Queue::copy, true),
      move("store", store, copy, Queue::copy),
      move("load", load, file, Queue::read, true),
      move("save", save, file, Queue::write),
      ::ds::decision("clip", clip),
      ::ds::decision("losses", losses),
      host_event("lease", lease, reads(Role::data, 1, kAny)),
      host_event("grad_view", grad_view, {Role::data, Access::write, true, 1, kAny}),
      host_event("grad", grad, {Role::data, Access::write, true, 1, kAny}),
      host_event("release", release, reads(Role::data, 1, kAny)),
  };
}

// Returns all rows, in the order of Op.
std::vector<InstrDef> build_table() {
  std::vector<InstrDef> rows = state_rows();
  for (const std::vector<InstrDef>& more : {optimizer_rows(), other_rows()})
    rows.insert(rows.end(), more.begin(), more.end());
  return rows;
}

// The rows of all instructions. Rows are never removed, and a deque does not move them, so
// references to rows stay valid.
struct Table {
  const std::vector<InstrDef> built_in = build_table();
  // Guards the members below.
  std::mutex lock;
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
  // The table is never destroyed, because threads may look rows up while the process exits.
  static Table& table = *new Table;
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
  require(!find_instruction(row.name), "an instruction '{}' is already registered", row.name);
  Table& t = table();
  std::lock_guard hold(t.lock);
  row.op = Op::added;
  return t.add(std::move(row));
}

std::vector<OperandRule> operand_rules(const InstrDef& row, size_t count) {
  // Each rule gets its smallest number of operands; the remaining operands go to the first rules
  // that accept more.
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
