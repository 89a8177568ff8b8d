// Turns an instruction into work of a queue. Everything that does not change from step to step is
// resolved once (resolve(), kernel_of()): views of the operands, the kernel, the group of a
// collective, the scalars. A step then only sets the extents and addresses that depend on the
// micro-step or the round (aim()), and submits a kernel, a collective, a copy or nothing to the
// queue (carry_out()).

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/comm_counts.h"
#include "comm/communicator.h"
#include "comm/communicator_group.h"
#include "core/base/attrs.h"
#include "core/base/dtype.h"
#include "core/base/element_run.h"
#include "core/base/error.h"
#include "core/base/group_scalars.h"
#include "core/base/log.h"
#include "core/base/round.h"
#include "core/base/shape.h"
#include "core/base/tier.h"
#include "core/device/device.h"
#include "core/device/group.h"
#include "core/device/scalars.h"
#include "core/device/thread_team.h"
#include "core/device/view.h"
#include "core/graph/custom_op.h"
#include "core/graph/ops.h"
#include "core/program/instruction.h"
#include "core/program/operand_view.h"
#include "core/program/program.h"
#include "exec/executor.h"
#include "exec/issue_number.h"
#include "exec/marks.h"
#include "exec/queues.h"
#include "io/request.h"
#include "kernels/custom.h"
#include "kernels/host_update.h"
#include "kernels/kernel.h"

namespace ds {
namespace {

// Returns whether the instruction runs a kernel.
bool has_kernel(const InstrDef& def) {
  return def.kind == Kind::model || def.kind == Kind::state || def.kind == Kind::update ||
         def.kind == Kind::decision;
}

// Returns whether the phase is forward or backward. A rank without data leaves the model out only
// in these phases of a step; in other programs it runs the model.
bool of_micro_step(Phase phase) {
  return phase == Phase::forward || phase == Phase::backward || phase == Phase::backward_last;
}

// Returns the view of an operand, with n at its bound. For an operand in the file, the view's data
// is null.
TensorView make_view(const Program& program, const Memory& memory, const Operand& o) {
  const Buffer& buffer = program.buffers[o.buffer];
  TensorView view = operand_view(o, program.bound);
  if (buffer.tier != Tier::nvme) {
    std::byte* base =
        memory.arena[static_cast<int>(buffer.tier)][static_cast<int>(buffer.residency)];
    view.data = base + buffer.offset + o.begin;
  }
  return view;
}

// Returns the program's buffer of scalars, or null if it has none.
StepScalars* find_block(const Program& program, const Memory& memory) {
  for (const Buffer& b : program.buffers) {
    if (b.holds != Holds::scalars || b.residency != Residency::persistent || b.offset < 0) continue;
    std::byte* base = memory.arena[static_cast<int>(b.tier)][static_cast<int>(b.residency)];
    return reinterpret_cast<StepScalars*>(base + b.offset);
  }
  return nullptr;
}

// Returns, for each view of an update with `total` elements, the part that belongs to elements
// [begin, end).
std::vector<TensorView> part_of(std::span<const TensorView> views, int64_t begin, int64_t end,
                                int64_t total) {
  std::vector<TensorView> parts(views.begin(), views.end());
  for (TensorView& v : parts) v = part_of_update(v, begin, end, total);
  return parts;
}

// Returns whether the instruction is launched once for each of its runs of elements. This applies
// to updates; other kernels get all runs at once.
bool by_runs(const Instr& in) { return !in.runs.empty() && in.def->kind == Kind::update; }

// A kernel of the registry, bound to its attributes, runs and thread team.
class CpuKernel final : public Kernel {
 public:
  // `custom` has the callbacks of the host, if the kernel calls any.
  CpuKernel(KernelFn run, const Instr& in, ThreadTeam& team, const CustomOp* custom)
      : run_(run),
        attrs_(in.attrs),
        team_(team),
        runs_(by_runs(in) ? std::span<const ElementRun>() : in.runs),
        custom_(custom) {}
  void run(const LaunchArgs& args) const override {
    if (!args.run.any())
      return run_({args.in, args.out, attrs_, *args.scalars, args.leaf, team_, runs_, custom_});
    const StepScalars own = scalars_of(*args.scalars, args.run);
    run_({args.in, args.out, attrs_, own, args.leaf, team_, runs_, custom_});
  }

 private:
  const KernelFn run_;
  const Attrs& attrs_;
  ThreadTeam& team_;
  const std::span<const ElementRun> runs_;
  const CustomOp* const custom_;
};

// Returns whether the kernel of the instruction calls a function of the host.
bool calls_host(const Instr& in) { return in.custom || in.def->op == Op::callback; }

// Returns the kernel of the registry, of a custom operation or of the host's update, for the types
// of the launch's views.
KernelFn find_kernel(const KernelRegistry& kernels, const Instr& in, const Launch& launch,
                     std::string_view device) {
  if (in.custom) return custom_kernel(in.def->name);
  if (in.def->op == Op::callback) return host_update_kernel();
  std::vector<DType> in_types, out_types;
  for (size_t k = 0; k < launch.views.size(); ++k) {
    (k < static_cast<size_t>(launch.inputs) ? in_types : out_types)
        .push_back(launch.views[k].dtype);
  }
  return kernels.find({in.def->name, in_types, out_types, in.attrs, device}).run;
}

template <typename T>
bool all_finite(const TensorView& view) {
  const T* data = view.as<T>();
  int64_t count = view.numel();
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(static_cast<double>(data[i]))) return false;
  }
  return true;
}

bool finite(const TensorView& view) {
  switch (view.dtype) {
    case DS_DTYPE_F32:
      return all_finite<float>(view);
    case DS_DTYPE_F64:
      return all_finite<double>(view);
    case DS_DTYPE_BF16:
      return all_finite<bf16>(view);
    case DS_DTYPE_F16:
      return all_finite<f16>(view);
    default:
      return true;
  }
}

}  // namespace

// A kernel that checks results. Its inputs are the results, and its leaf is the issue number. It
// stores the first result, in issue order, that has a NaN or infinity, as issue number * kResults +
// index of the result.
class Executor::Finite final : public Kernel {
 public:
  static constexpr int64_t kNone = INT64_MAX, kResults = 1 << 10;
  void run(const LaunchArgs& args) const override {
    for (size_t k = 0; k < args.in.size(); ++k) {
      if (finite(args.in[k])) continue;
      int64_t found = args.leaf * kResults + static_cast<int64_t>(k), least = first_.load();
      while (found < least && !first_.compare_exchange_weak(least, found)) continue;
      return;
    }
  }
  int64_t first() const { return first_.load(); }

 private:
  mutable std::atomic<int64_t> first_{kNone};
};

std::string label_of(const Program& program, const Instr& instr) {
  if (instr.operands.empty()) return instr.def->name;
  return instr.def->name + " " + program.buffers[instr.operands.back().buffer].name;
}

Executor::Executor(const Program& program, ExecContext context)
    : program_(program),
      context_(std::move(context)),
      data_ranks_(program.mesh.data_size()),
      first_leaf_(program.mesh.leaf(0, program.rank)),
      block_(find_block(program, context_.memory)),
      marks_(*context_.queues) {
  MicroId last(0);
  size_t operands = 0;
  for (const Instr& in : program.instrs) operands += in.operands.size();
  // Launches point into views_, so its storage must not move.
  views_.reserve(operands);
  launches_.reserve(program.instrs.size());
  for (InstrId i : program.instrs.ids()) {
    launches_.push_back(resolve(i));
    last = std::max(last, program.micro({i, program.rounds(i) - 1}));
  }
  // Kernels are created in a second loop, so that their memory is allocated consecutively, in the
  // order of the instructions.
  for (Launch& launch : launches_) {
    const Instr& in = *launch.instr;
    if (!has_kernel(*in.def)) continue;
    ensure(!calls_host(in) || context_.queues->of(in.queue)->immediate(),
           "callbacks of '{}' would run on another thread than the caller's",
           in.custom ? in.custom->name : in.def->name);
    kernels_.push_back(kernel_of(launch));
    launch.kernel = kernels_.back().get();
  }
  extents_.assign(last.index() + 1, program.bound);
}

// If the queue runs host code, the kernel comes from the registry, otherwise from the device.
std::unique_ptr<Kernel> Executor::kernel_of(const Launch& launch) const {
  const Instr& in = *launch.instr;
  const auto inputs = static_cast<size_t>(launch.inputs);
  DeviceQueue& queue = *context_.queues->of(in.queue);
  if (queue.runs_host_code()) {
    KernelFn run = find_kernel(*context_.kernels, in, launch, context_.queues->device().kernels());
    const CustomOp* custom = in.custom ? in.custom.get() : context_.update;
    return std::make_unique<CpuKernel>(run, in, context_.queues->team(in.queue), custom);
  }
  return queue.make_kernel({in.def->name, launch.views.first(inputs), launch.views.subspan(inputs),
                            in.attrs, launch.by_runs ? std::span<const ElementRun>() : in.runs});
}

// If the instruction has an operand of scalars, its kernel reads that operand. Otherwise kernels on
// the host queue read the host's scalars, and other kernels the program's buffer, if there is one.
Launch Executor::resolve(InstrId i) {
  const Instr& in = program_.instrs[i];
  Launch launch;
  launch.instr = &in;
  launch.scalars = block_ && in.queue != Queue::host ? block_ : context_.scalars;
  size_t first = views_.size();
  for (const Operand& o : in.operands) {
    if (has_kernel(*in.def) && program_.buffers[o.buffer].holds == Holds::scalars) {
      launch.scalars =
          static_cast<const StepScalars*>(make_view(program_, context_.memory, o).data);
      // A kernel reads its scalars by pointer, so they have no view.
      if (o.access == Access::read) continue;
    }
    launch.operands.push_back(&o);
    views_.push_back(make_view(program_, context_.memory, o));
    launch.inputs += o.access == Access::read ? 1 : 0;
    launch.symbolic = launch.symbolic || o.type.shape.symbolic();
    launch.moves = launch.moves || o.stride != 0;
  }
  launch.views = std::span(views_).subspan(first);
  if (in.def->kind == Kind::collective) {
    launch.group = group_of(in);
    const auto [op, count] = collective_of(launch);
    const int64_t room = launch.group->room(op, count, launch.views[0].dtype);
    if (room > 0) room_ = context_.queues->of(in.queue)->scratch(room);
  }
  launch.model = in.def->kind == Kind::model && in.queue == Queue::compute &&
                 of_micro_step(program_.phase(in));
  launch.by_runs = by_runs(in);
  launch.micro = in.micro;
  launch.label = label_of(program_, in);
  return launch;
}

Executor::~Executor() = default;

Group* Executor::group_of(const Instr& in) {
  Communicator* comm = &context_.comm->of(in.group.size, in.group.stride);
  std::unique_ptr<Group>& group = groups_[comm];
  if (!group) {
    group = make_group(*comm, context_.queues->device(), *context_.queues->of(in.queue),
                       context_.comm->link_of(*comm));
  }
  return group.get();
}

void Executor::set_extent(MicroId micro, int64_t n) {
  require(n > 0 && n <= program_.bound, "input length must be 1 to {} (the declared bound), got {}",
          program_.bound, n);
  if (extents_.has(micro)) extents_[micro] = n;
}

// Extents depend on the micro-step, and addresses of operands with a stride on the round.
void Executor::aim(Launch& launch, const Position& at) {
  int64_t n = extents_[program_.micro(at)];
  for (size_t k = 0; k < launch.views.size(); ++k) {
    const Operand& o = *launch.operands[k];
    TensorView& view = launch.views[k];
    for (size_t d = 0; launch.symbolic && d < o.type.shape.rank(); ++d) {
      if (o.type.shape[d].symbolic) view.dims[d] = n;
    }
    if (o.stride != 0) view.data = make_view(program_, context_.memory, in_round(o, at.round)).data;
  }
}

// A loss has 4 bytes, so kNoLeaf overwrites all of it.
void Executor::leave_out(const Launch& launch, DeviceQueue& queue) {
  for (size_t k = static_cast<size_t>(launch.inputs); k < launch.views.size(); ++k) {
    const TensorView& view = launch.views[k];
    queue.fill(view.data, 0, view.bytes());
    bool loss = program_.buffers[launch.operands[k]->buffer].holds == Holds::loss;
    if (loss) queue.copy(view.data, &kNoLeaf, sizeof kNoLeaf);
  }
}

void Executor::give(const Position& at, DeviceQueue& queue) {
  carry_out(at, queue);
  count_bytes(launches_[at.instr]);
}

void Executor::count(const Position& at) {
  Launch& launch = launches_[at.instr];
  if (launch.symbolic && launch.instr->def->kind == Kind::copy) aim(launch, at);
  count_bytes(launch);
}

void Executor::count_bytes(Launch& launch) {
  if (launch.instr->def->kind != Kind::copy) return;
  ++launch.copied.calls;
  launch.copied.bytes += launch.views[0].bytes();
}

void Executor::carry_out(const Position& at, DeviceQueue& queue) {
  Launch& launch = launches_[at.instr];
  if (launch.symbolic || launch.moves) aim(launch, at);
  if (launch.model && context_.scalars->absent != 0) return leave_out(launch, queue);
  if (launch.kernel) return run_kernel(launch, at, queue);
  if (launch.group) return collect(launch, queue);
  // The host of a delegate engine performs this instruction: run_to() stops after the instruction,
  // and the host acts.
  if (launch.instr->def->kind == Kind::event) return;
  queue.copy(launch.views[1].data, launch.views[0].data, launch.views[0].bytes());
}

void Executor::run_kernel(const Launch& launch, const Position& at, DeviceQueue& queue) {
  auto inputs = static_cast<size_t>(launch.inputs);
  MicroId micro = launch.micro + at.round * program_.repeat.micros;
  LaunchArgs args{launch.views.first(inputs), launch.views.subspan(inputs), launch.scalars,
                  first_leaf_ + micro.number() * data_ranks_};
  if (launch.by_runs) {
    run_by_runs(launch, args, queue);
  } else {
    queue.launch(*launch.kernel, args);
  }
  if (!check_) return;
  // Outputs that are scratch memory of an operation are not checked, because the operation need not
  // write all of it.
  const OpDef* op = launch.instr->def->graph;
  const size_t count = op ? std::min(op->results(inputs), args.out.size()) : args.out.size();
  const LaunchArgs results{args.out.first(count), {}, args.scalars, issue_number(program_, at)};
  queue.runs_host_code() ? queue.launch(*check_, results) : check_copies(results, queue);
}

// This thread waits for the results and checks copies of the results on the host.
void Executor::check_copies(const LaunchArgs& results, DeviceQueue& queue) {
  constexpr int64_t kLook = 50'000'000;
  std::unique_ptr<Event> made = queue.make_event();
  queue.record(*made);
  for (auto ended = made->waiter(); !ended(kLook);) idle(kJoin);
  std::vector<std::vector<std::byte>> copies;
  std::vector<TensorView> views(results.in.begin(), results.in.end());
  for (TensorView& view : views) {
    std::vector<std::byte>& copy = copies.emplace_back(static_cast<size_t>(view.bytes()));
    context_.queues->device().copy(copy.data(), view.data, view.bytes());
    view.data = copy.data();
  }
  check_->run({views, {}, nullptr, results.leaf});
}

// The scalars of a group other than 0 are passed by pointer, because the kernel reads them when it
// runs.
void Executor::run_by_runs(const Launch& launch, const LaunchArgs& args, DeviceQueue& queue) {
  const int64_t total = args.in[0].numel();
  for (const ElementRun& run : launch.instr->runs) {
    if (run.skips && context_.left_out->has(run.param)) continue;
    const int64_t missed =
        run.missed + (run.skips ? context_.left_out->count(run.param) : int64_t{0});
    std::vector<TensorView> in = part_of(args.in, run.begin, run.end, total),
                            out = part_of(args.out, run.begin, run.end, total);
    const GroupScalars* own =
        run.group == 0 ? nullptr : &context_.groups->at(static_cast<size_t>(run.group));
    queue.launch(*launch.kernel,
                 {in, out, args.scalars, args.leaf, {missed, run.param, run.element, own}});
  }
}

std::pair<Group::Op, int64_t> Executor::collective_of(const Launch& launch) {
  const TensorView &from = launch.views[0], &to = launch.views[1];
  switch (launch.instr->def->op) {
    case Op::all_gather:
      return {Group::Op::all_gather, from.numel()};
    case Op::reduce_scatter:
      return {Group::Op::reduce_scatter, to.numel()};
    case Op::all_reduce:
      return {Group::Op::all_reduce, to.numel()};
    case Op::all_to_all:
      return {Group::Op::all_to_all, from.numel() / launch.instr->group.size};
    default:
      raise(DS_ERROR_INTERNAL, "'{}' is not a collective", launch.instr->def->name);
  }
}

void Executor::collect(const Launch& launch, DeviceQueue& queue) {
  const TensorView &from = launch.views[0], &to = launch.views[1];
  const auto [op, count] = collective_of(launch);
  launch.group->run(queue, op, from.data, to.data, count, from.dtype, room_, launch.label);
}

std::map<std::string, CommCount> Executor::copies() const {
  std::map<std::string, CommCount> out;
  for (const Launch& launch : launches_) {
    if (launch.copied.calls == 0) continue;
    CommCount& count = out[launch.instr->def->name];
    count.calls += launch.copied.calls;
    count.bytes += launch.copied.bytes;
  }
  return out;
}

// A transfer covers whole blocks of the file; the buffers are padded accordingly.
IoRequest Executor::io_request(const Position& at) {
  Launch& launch = launches_[at.instr];
  if (launch.symbolic || launch.moves) aim(launch, at);
  const Instr& in = *launch.instr;
  bool write = in.queue == Queue::write;
  const Operand file = in_round(in.operands[write ? 1 : 0], at.round);
  const TensorView& memory = launch.views[write ? 0 : 1];
  int64_t bytes = round_up(memory.numel() * size_of(memory.dtype), kFileBlock);
  IoRequest request;
  request.write = write;
  request.file = context_.memory.file;
  const Buffer& extent = program_.buffers[file.buffer];
  request.offset = extent.offset + file.begin;
  // The file contains the persistent arena, followed by the transient one.
  if (extent.residency == Residency::transient)
    request.offset += program_.arenas[static_cast<int>(Tier::nvme)].persistent;
  request.data = memory.data;
  request.bytes = static_cast<size_t>(bytes);
  request.label = launch.label;
  return request;
}

void Executor::check_results(bool on) { check_ = on ? std::make_unique<Finite>() : nullptr; }

std::string Executor::first_bad() const {
  if (!check_ || check_->first() == Finite::kNone) return "";
  Position at = issued_at(program_, check_->first() / Finite::kResults);
  const Launch& launch = launches_[at.instr];
  auto result = static_cast<size_t>(launch.inputs + check_->first() % Finite::kResults);
  return fmt::format("{} of {} in micro-step {}",
                     program_.buffers[launch.operands[result]->buffer].name,
                     launch.instr->def->name, program_.micro(at));
}

void Executor::worked(size_t number, int64_t begin_ns, int64_t end_ns) {
  progress_.fetch_add(1, std::memory_order_relaxed);
  if (context_.trace && number != kJoin) tell_span(number, begin_ns, end_ns);
}

void Executor::tell_span(size_t number, int64_t begin_ns, int64_t end_ns) {
  const Launch& launch = launches_[instr_of(number)];
  context_.trace->span(queue_name(launch.instr->queue), launch.label, begin_ns, end_ns, 0,
                       static_cast<int64_t>(number));
}

void Executor::failed(size_t number, const std::exception& error) {
  fail(number == kJoin ? InstrId(kJoin) : instr_of(number), error);
}

// Shows progress to the other ranks if any task has finished since the last call. Only the thread
// that uses the communicator may do this: the issuing thread if collectives run on the device,
// otherwise the thread of collectives. A call on any other thread returns at once.
void Executor::idle(size_t number) {
  if (number != kJoin) {
    const RankQueues& queues = *context_.queues;
    const Queue waits = launches_[instr_of(number)].instr->queue;
    const bool issues = !queues.of(Queue::comm)->runs_host_code();
    if (issues ? queues.of(waits)->runs_host_code() : waits != Queue::comm) return;
  }
  uint64_t done = progress_.load(std::memory_order_relaxed);
  if (done != shown_) context_.comm->tick();
  shown_ = done;
  for (auto& [comm, group] : groups_) group->watch();
}

void Executor::send_scalars() {
  if (block_) context_.queues->device().copy(block_, context_.scalars, sizeof *block_);
}

void Executor::fetch_scalars() {
  if (block_) context_.queues->device().copy(context_.scalars, block_, sizeof *block_);
}

void Executor::take_tail() {
  if (!context_.tail) return;
  if (context_.tail->owner && context_.tail->owner != this) context_.tail->owner->settle();
  context_.tail->owner = this;
  run_ = ++context_.tail->runs;
}

void Executor::leave_tail() {
  if (!context_.tail || context_.tail->owner != this) return;
  try {
    settle();
  } catch (const std::exception& error) {
    log_line(LogLevel::error, error.what());
  }
  context_.tail->owner = nullptr;
}

std::string Executor::name_of(const Position& at) const {
  if (!launches_.has(at.instr)) return "at its end";
  return fmt::format("instruction {} ({})", at.instr, launches_[at.instr].label);
}

// A later call reports a fault of the device. The current work of each queue is between the last
// mark that it has passed and the next mark. A queue whose next instruction waits for an unfinished
// instruction of another queue cannot have caused the fault, so it is left out.
std::string Executor::unfinished() const {
  std::string out;
  std::vector<Marks::Interval> all = marks_.unfinished();
  std::erase_if(all, [&](const Marks::Interval& in) {
    const auto& waits = program_.instrs[in.first.instr].waits;
    return std::ranges::any_of(waits, [&](const Wait& w) {
      const Queue other = program_.instrs[w.instr].queue;
      return !w.run_before && other != in.queue && context_.queues->of(other) &&
             marks_.unfinished(other, w.instr);
    });
  });
  for (const Marks::Interval& in : all) {
    out += out.empty() ? "" : " or ";
    if (all.size() > 1) out += fmt::format("{} ", queue_name(in.queue));
    out += name_of(in.first);
    if (!(in.first == in.last)) out += " to " + name_of(in.last);
  }
  return out;
}

// A fault of the device gets the names of all instructions that may have caused it. Any other error
// gets the name of instruction `index`.
void Executor::fail(InstrId index, const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  std::string where = dynamic_cast<const DeviceFault*>(&error) ? unfinished() : "";
  if (where.empty()) where = name_of(index);
  throw Error(known ? known->status() : DS_ERROR_INTERNAL,
              fmt::format("rank {}, {} {}: {}", program_.rank, program_.name, where, error.what()),
              known ? known->details() : ErrorDetails());
}

}  // namespace ds
