#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/round.h"
#include "core/base/shape.h"
#include "core/base/tier.h"
#include "core/device/scalars.h"
#include "core/device/view.h"
#include "core/program/element_run.h"
#include "core/program/instruction.h"
#include "core/program/program.h"
#include "exec/executor.h"
#include "io/request.h"
#include "kernels/kernel.h"

namespace ds {
namespace {

bool has_kernel(const InstrDef& def) {
  return def.kind == Kind::model || def.kind == Kind::state || def.kind == Kind::update ||
         def.kind == Kind::decision;
}

TensorView make_view(const Program& program, const Memory& memory, const Operand& o) {
  const Buffer& buffer = program.buffers[o.buffer];
  TensorView view;
  view.dtype = o.type.dtype;
  view.rank = static_cast<int>(o.type.shape.rank());
  for (size_t d = 0; d < o.type.shape.rank(); ++d) {
    const Dim& dim = o.type.shape[d];
    view.dims[d] = dim.symbolic ? program.bound : dim.extent;
  }
  if (buffer.tier != Tier::nvme) {
    std::byte* base = memory.arena[static_cast<int>(buffer.tier)][static_cast<int>(buffer.residency)];
    view.data = base + buffer.offset + o.begin;
  }
  return view;
}

// Elements [begin, end) of every operand of an element-wise update.
std::vector<TensorView> part_of(std::span<const TensorView> views, int64_t begin, int64_t end) {
  std::vector<TensorView> parts(views.begin(), views.end());
  for (TensorView& v : parts) {
    v.data = static_cast<std::byte*>(v.data) + begin * size_of(v.dtype);
    v.dims[0] = end - begin;
  }
  return parts;
}

KernelFn find_kernel(const KernelRegistry& kernels, const Instr& in, const Launch& launch) {
  std::vector<DType> in_types, out_types;
  for (size_t k = 0; k < launch.views.size(); ++k) {
    (k < static_cast<size_t>(launch.inputs) ? in_types : out_types).push_back(launch.views[k].dtype);
  }
  return kernels.find({in.def->name, in_types, out_types, in.attrs}).run;
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
    default:
      return true;
  }
}

}  // namespace

std::string label_of(const Program& program, const Instr& instr) {
  if (instr.operands.empty()) return instr.def->name;
  return instr.def->name + " " + program.buffers[instr.operands.back().buffer].name;
}

Executor::Executor(const Program& program, ExecContext context)
    : program_(program), context_(std::move(context)) {
  MicroId last(0);
  launches_.reserve(program.instrs.size());
  for (InstrId i : program.instrs.ids()) {
    const Instr& in = program.instrs[i];
    Launch launch;
    launch.instr = &in;
    for (const Operand& o : in.operands) {
      if (program.buffers[o.buffer].holds == Holds::scalars) {
        block_ = static_cast<StepScalars*>(make_view(program, context_.memory, o).data);
        if (o.access == Access::read) continue;  // by pointer
      }
      launch.operands.push_back(&o);
      launch.views.push_back(make_view(program, context_.memory, o));
      launch.inputs += o.access == Access::read ? 1 : 0;
      launch.symbolic = launch.symbolic || o.type.shape.symbolic();
      launch.moves = launch.moves || o.stride != 0;
    }
    if (has_kernel(*in.def)) launch.kernel = find_kernel(*context_.kernels, in, launch);
    if (in.def->kind == Kind::collective) launch.comm = &context_.comm->of(in.group.size, in.group.stride);
    launch.model =
        in.def->kind == Kind::model && in.queue == Queue::compute && program.phase(in) != Phase::update;
    launch.label = label_of(program, in);
    last = std::max(last, program.micro({i, program.rounds(i) - 1}));
    launches_.push_back(std::move(launch));
  }
  extents_.assign(last.index() + 1, program.bound);
}

void Executor::set_extent(MicroId micro, int64_t n) {
  require(n > 0 && n <= program_.bound, "input length must be 1 to {} (the declared bound), got {}",
          program_.bound, n);
  if (extents_.has(micro)) extents_[micro] = n;
}

void Executor::aim(Launch& launch, Position at) {
  if (!launch.symbolic && !launch.moves) return;
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

// What an operation of the model leaves behind on a rank without data.
void Executor::leave_out(const Launch& launch) {
  for (size_t k = static_cast<size_t>(launch.inputs); k < launch.views.size(); ++k) {
    const TensorView& view = launch.views[k];
    std::memset(view.data, 0, static_cast<size_t>(view.numel() * size_of(view.dtype)));
    bool loss = program_.buffers[launch.operands[k]->buffer].holds == Holds::loss;
    if (loss) std::memcpy(view.data, &kNoLeaf, sizeof kNoLeaf);
  }
}

void Executor::perform(Position at) {
  aim(launches_[at.instr], at);
  const Launch& launch = launches_[at.instr];
  const Instr& in = *launch.instr;
  std::span<const TensorView> views(launch.views);
  std::span<const TensorView> reads = views.first(static_cast<size_t>(launch.inputs));
  std::span<const TensorView> writes = views.subspan(static_cast<size_t>(launch.inputs));
  if (launch.model && scalars().absent != 0) return leave_out(launch);
  if (launch.kernel) {
    int64_t leaf = program_.mesh.leaf(program_.micro(at).number(), program_.rank);
    bool whole = in.runs.empty() || in.def->kind != Kind::update;
    if (whole) launch.kernel({reads, writes, in.attrs, scalars(), leaf, *context_.team, in.runs});
    for (auto [begin, end, missed] : whole ? std::span<const ElementRun>() : in.runs) {
      StepScalars own = scalars();
      own.updates -= missed;
      launch.kernel(
          {part_of(reads, begin, end), part_of(writes, begin, end), in.attrs, own, leaf, *context_.team});
    }
    if (check_) check_launch(launch, at);
    return;
  }
  if (in.def->kind == Kind::collective) return collect(launch);
  if (in.def->kind == Kind::copy) return copy(launch);
  context_.host_call(in, views);
}

void Executor::collect(const Launch& launch) {
  const TensorView &from = launch.views[0], &to = launch.views[1];
  auto bytes = static_cast<size_t>(from.numel() * size_of(from.dtype));
  auto count = static_cast<size_t>(to.numel());
  switch (launch.instr->def->op) {
    case Op::all_gather:
      return launch.comm->all_gather(from.data, to.data, bytes, launch.label);
    case Op::reduce_scatter:
      return launch.comm->reduce_scatter(from.data, to.data, count, from.dtype, launch.label);
    case Op::all_reduce:
      return launch.comm->all_reduce(from.data, to.data, count, from.dtype, launch.label);
    case Op::all_to_all:
      return launch.comm->all_to_all(from.data, to.data, bytes / static_cast<size_t>(launch.comm->size()),
                                     launch.label);
    default:
      raise(DS_ERROR_INTERNAL, "'{}' is no collective", launch.instr->def->name);
  }
}

void Executor::copy(const Launch& launch) {
  const TensorView &from = launch.views[0], &to = launch.views[1];
  int64_t bytes = from.numel() * size_of(from.dtype);
  std::memcpy(to.data, from.data, static_cast<size_t>(bytes));
  CommCount& count = copies_[launch.instr->def->name];
  ++count.calls;
  count.bytes += bytes;
}

IoRequest Executor::io_request(Position at) {
  const Launch& launch = launches_[at.instr];
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
  if (extent.residency == Residency::transient)  // the file holds one arena after the other
    request.offset += program_.arenas[static_cast<int>(Tier::nvme)].persistent;
  request.data = memory.data;
  request.bytes = static_cast<size_t>(bytes);
  request.label = launch.label;
  return request;
}

void Executor::check_launch(const Launch& launch, Position at) {
  if (!first_bad_.empty()) return;
  for (size_t k = static_cast<size_t>(launch.inputs); k < launch.views.size(); ++k) {
    if (finite(launch.views[k])) continue;
    const Operand& o = *launch.operands[k];
    first_bad_ = fmt::format("{} of {} in micro-step {}", program_.buffers[o.buffer].name,
                             launch.instr->def->name, program_.micro(at));
    return;
  }
}

void Executor::send_scalars() {
  if (block_) *block_ = *context_.scalars;
}

void Executor::fetch_scalars() {
  if (block_) *context_.scalars = *block_;
}

void Executor::take_tail() {
  if (!context_.tail) return;
  if (context_.tail->owner && context_.tail->owner != this) context_.tail->owner->settle();
  context_.tail->owner = this;
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

void Executor::fail(InstrId index, const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  throw Error(known ? known->status() : DS_ERROR_INTERNAL,
              fmt::format("rank {}, {} instruction {} ({}): {}", program_.rank, program_.name, index,
                          launches_[index].label, error.what()));
}

}  // namespace ds
