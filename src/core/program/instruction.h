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
// across queues only waits order them. A run of a program starts when all queues but `write` have
// finished the run before: saves may go on into it. compute: device kernels; host: kernels on host
// memory; comm: collectives; copy: device <-> host; read, write: file <-> host.
enum class Queue : int8_t { compute = 0, host, comm, copy, read, write };
inline constexpr int kQueues = 6;
template <class T>
struct PerQueue : std::array<T, kQueues> {
  T& operator[](Queue queue) { return this->at(static_cast<size_t>(queue)); }
  const T& operator[](Queue queue) const { return this->at(static_cast<size_t>(queue)); }
  using std::array<T, kQueues>::operator[];
};
const char* queue_name(Queue queue);

enum class Access : int8_t { read = 0, write, update };  // update: read and written

// The instructions that programs have beside the operations of the graph. `graph` stands for those,
// `added` for rows of add_instruction.
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

// Who carries an instruction out.
enum class Kind : int8_t {
  model = 0,   // a kernel: an operation of the graph
  state,       // a kernel: on what ZeRO keeps
  update,      // a kernel: an optimizer
  collective,  // a group of ranks
  copy,        // device <-> host
  file,        // file <-> host
  decision,    // a kernel: on the step's scalars, which it writes
  event        // the host program of delegate mode, or nobody: where a lease ends
};

// What an operand is to an instruction.
enum class Role : int8_t {
  source = 0,  // read
  target,      // written
  sum,         // added to
  scalars,  // the step's scalars: a kernel that only reads them has them by pointer, not as a view
  grad,
  master,
  state,  // of the optimizer
  param,
  norms,
  error,    // of quantization or of signs
  rows,     // packed rows of a table,
  numbers,  // and which rows they are
  ids
};

// A place in the list of operands. Rows of operations of the graph have none: theirs are values of
// it.
struct OperandRule {
  Role role;
  Access access;
  bool may_update = false;  // `write` may also be `update`
  int32_t least = 1;        // 0: may be absent
  int32_t most = 1;         // more: it repeats
};

// What a row says, one row for each instruction, in one table: the same for every program, size and
// rank.
struct InstrDef {
  std::string name;
  Op op = Op::added;
  Kind kind = Kind::state;
  Queue queue = Queue::compute;       // before it follows its state to other memory
  std::vector<OperandRule> operands;  // reads, then writes and updates

  // Floating-point operations for an element of the first operand; null: none. Operations of the
  // graph have theirs in OpDef.
  double (*flops)(const Attrs& attrs) = nullptr;

  bool follows_state = false;  // runs on the host's memory when its operands live there
  bool starts_early =
      false;             // what moves or encodes what is needed later: hoist may start it earlier
  bool encodes = false;  // its target holds codes of its source's elements
  bool selects = false;  // reads no more of its first operand than its first output holds
  bool reduces = false;  // adds up what ranks have
  const OpDef* graph = nullptr;  // the operation's row; null: none of the graph's
};

const InstrDef& instruction(Op op);  // not of `graph` or `added`
// Of an instruction or an operation of the graph; null when there is none of that name. Rows stay
// where they are for as long as the process lives.
const InstrDef* find_instruction(std::string_view name);
const InstrDef& instruction(
    std::string_view name);                        // throws, with the nearest name as a suggestion
std::vector<const InstrDef*> instruction_table();  // all but those of the graph, in a fixed order

// The rule of each of `count` operands of an instruction; throws when it takes another number. Of a
// row that is not the graph's.
std::vector<OperandRule> operand_rules(const InstrDef& row, size_t count);

// Enters a row for a kernel that a plugin or a test registers; its name must be new.
const InstrDef& add_instruction(InstrDef row);

}  // namespace ds
