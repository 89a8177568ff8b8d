#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/attrs.h"
#include "core/graph/ops.h"

namespace ds {

// The in-order queues of one rank. Instructions of one queue start and finish in issue order;
// across queues only waits order them. A run of a program starts when all queues except `write`
// have finished the previous run, so saves of the previous run may still be in progress. `compute`
// runs device kernels, `host` kernels on host memory, `comm` collectives, `copy` transfers between
// device and host, `read` transfers from files to the host, and `write` transfers from the host to
// files.
enum class Queue : int8_t { compute = 0, host, comm, copy, read, write };
inline constexpr int kQueues = 6;
template <class T>
struct PerQueue : std::array<T, kQueues> {
  T& operator[](Queue queue) { return this->at(static_cast<size_t>(queue)); }
  const T& operator[](Queue queue) const { return this->at(static_cast<size_t>(queue)); }
  using std::array<T, kQueues>::operator[];
};
const char* queue_name(Queue queue);

// How an instruction accesses an operand. An `update` both reads and writes it.
enum class Access : int8_t { read = 0, write, update };

// The instructions of programs. `graph` stands for every operation of the graph, `added` for every
// row of add_instruction(), and each other enumerator for one row of the table.
enum class Op : int8_t {
  zero = 0,
  accumulate,
  init_param,
  granule_norms,
  quantize,
  dequantize,
  dequantize_sum,
  pack_rows,
  sum_rows,
  sum_norms,
  add_error,
  mean_signs,
  pack_signs,
  unpack_signs,
  adamw,
  sgd,
  lion,
  adagrad,
  callback,
  lamb_moments,
  lamb_ratios,
  lamb,
  momentum,
  frozen_adam,
  own_gradient,
  local_adam,
  synced_adam,
  scale_momentum,
  lamb_scales,
  frozen_lamb_moments,
  frozen_lamb_ratios,
  adamw_codes,
  muon_momentum,
  unit_matrix,
  blend,
  muon,
  pack_top,
  sum_top,
  mean_gradients,
  all_gather,
  reduce_scatter,
  all_reduce,
  all_to_all,
  fetch,
  store,
  load,
  save,
  clip,
  losses,
  lease,
  grad_view,
  grad,
  release,
  graph,
  added
};

// The kind of an instruction, by the part of the system that executes it and the data that it works
// on.
enum class Kind : int8_t {
  // Kernel of an operation of the graph.
  model = 0,
  // Kernel on the tensors that ZeRO keeps.
  state,
  // Kernel of an optimizer.
  update,
  // Communication among a group of ranks.
  collective,
  // Transfer between device and host.
  copy,
  // Transfer between file and host.
  file,
  // Kernel that writes the step's scalars.
  decision,
  // A call of the host in delegate mode.
  event
};

// The role of an operand for code outside the kernel. The operand's buffer says what it contains
// (Holds).
enum class Role : int8_t {
  data = 0,
  // An output that the instruction may add to.
  sum,
  // Scalars of the step. A kernel that only reads them receives a pointer to them instead of a
  // view.
  scalars,
  // States of an optimizer. The optimizer's rows (core/program/state.h) say how many there are.
  state
};

// A rule for one operand of an instruction, or for several consecutive ones. Rows of graph
// operations have no rules, because their operands are values of the graph.
struct OperandRule {
  Role role;
  Access access;
  // Whether an operand whose access is `write` may also be an `update`.
  bool may_update = false;
  // The smallest number of operands. If it is 0, the operand is optional.
  int32_t least = 1;
  // The largest number of operands.
  int32_t most = 1;
};

// The largest number of states that an update by callback has.
inline constexpr int kMostOwnStates = 8;

// A row of the table of instructions, which is the same for every program, size and rank.
struct InstrDef {
  std::string name;
  Op op = Op::added;
  Kind kind = Kind::state;
  // The queue on which the instruction runs, unless follows_state moves it to the host queue.
  Queue queue = Queue::compute;
  // Rules of the operands: first those that are read, then those that are written or updated.
  std::vector<OperandRule> operands;

  // Returns the floating-point operations per element of the first operand. Null if there is no
  // arithmetic. Operations of the graph have their own formula in OpDef.
  double (*flops)(const Attrs& attrs) = nullptr;

  // Whether the instruction runs on the host queue if its operands are in host memory.
  bool follows_state = false;
  // Whether the pass `hoist` may start the instruction earlier. It moves or encodes data that is
  // needed later.
  bool starts_early = false;
  // Whether the output holds quantized codes of the input's elements.
  bool encodes = false;
  // Whether the instruction reads only as many elements of its first operand as its first output
  // has.
  bool selects = false;
  // Whether the instruction adds up contributions of several ranks.
  bool reduces = false;
  // The row of the graph operation that this row stands for, or null.
  const OpDef* graph = nullptr;
};

// Returns the row of an instruction other than `graph` and `added`.
const InstrDef& instruction(Op op);
// Returns the row of an instruction or of a graph operation, or null for an unknown name. Rows stay
// valid until the process exits.
const InstrDef* find_instruction(std::string_view name);
// Like find_instruction(), but throws for an unknown name and suggests the nearest one.
const InstrDef& instruction(std::string_view name);
// Returns all rows except those of graph operations, in a fixed order.
std::vector<const InstrDef*> instruction_table();

// Returns the rules for `count` operands of an instruction, one for each operand. Throws if the
// instruction cannot have that many. The row must not be a graph operation.
std::vector<OperandRule> operand_rules(const InstrDef& row, size_t count);

// Adds a row for a kernel that a plugin or a test registers. Its name must be new.
const InstrDef& add_instruction(InstrDef row);

}  // namespace ds
