#include <algorithm>
#include <cstring>

#include "core/base/error.h"
#include "core/base/half.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "engine/delegate.h"

namespace ds {
bool DelegateEngine::follow(const HostEvent& event) {
  events_.push_back(event);
  if (!following_) return false;
  size_t at = events_.size() - 1;
  if (at >= record_.size() || record_[at] != event) {
    guarded([&] { leave_record(); });
    return false;
  }
  guarded([&] { step_->run_to(event_end_[at]); });
  return true;
}

// The host has left its order: what the recorded program has done of this step stays, the rest goes call by
// call.
void DelegateEngine::leave_record() {
  following_ = false;
  std::vector<char> reduced(program_->buffers.size(), 0);
  InstrId done = step_->position();
  for (InstrId i = 0; i < done; ++i) {
    const Instr& in = program_->instrs[static_cast<size_t>(i)];
    if (in.queue == Queue::comm) reduced[static_cast<size_t>(in.operands[0].buffer)] = 1;
  }
  step_->abandon();
  next_reduce_ = static_cast<int64_t>(plan_.lease.size()) - 1;
  for (InstrId i = 0; i < done; ++i) {
    const Instr& in = program_->instrs[static_cast<size_t>(i)];
    if (in.op != "grad" || in.micro != micro_) continue;
    int32_t param = record_[static_cast<size_t>(in.attrs.integer("event"))].params[0];
    size_t b = bucket_of(param);
    if (reduced[static_cast<size_t>(in.operands[0].buffer)]) {
      missing_[b] = -1;  // done in this micro-step
      continue;
    }
    const Buffer& buffer = program_->buffers[static_cast<size_t>(in.operands[0].buffer)];
    const std::byte* from = own_memory().memory().arena[static_cast<int>(buffer.tier)][1] + buffer.offset;
    std::memcpy(grad_address(param), from + in.operands[0].begin,
                static_cast<size_t>(in.operands[0].bytes(1)));
  }
  // Leases that the program gave stay where they are until released; they are not counted per bucket.
}

int64_t DelegateEngine::program_bytes(int tier) const {
  return program_ ? (program_->arenas[tier].transient + kFileBlock - 1) / kFileBlock * kFileBlock : 0;
}

// Compiles the step that was just made call by call.
void DelegateEngine::record() {
  compare_records();
  record_ = events_;
  int64_t beside[3];
  // The program's memory is rounded up to whole blocks.
  for (int t = 0; t < 3; ++t) beside[t] = fragment_transient_[t] + kFileBlock;
  std::optional<Program> made = compile_recorded(plan_, config_, options_.machine, record_, beside);
  if (!made) {
    if (comm_.rank() == 0 && !told_) {
      log_line(LogLevel::warning, "memory_budget has no room for the recorded step: it goes on call by call");
    }
    told_ = true;
    if (!program_) return;
  }
  end_all_executors();
  program_ = made ? std::make_unique<Program>(std::move(*made)) : nullptr;
  if (program_ && options_.program_filter) options_.program_filter(*program_);
  MemoryPlan memory;
  for (int t = 0; t < 3; ++t) {
    memory.tiers[t].transient = program_bytes(t) + fragment_transient_[t];
  }
  own_memory().resize_transient(memory);
  for (size_t b = 0; b < plan_.grads.size(); ++b) {  // pages of the call-by-call step
    if (plan_.grads[b] < 0) continue;
    const Buffer& grads = placed().buffers[static_cast<size_t>(plan_.grads[b])];
    own_memory().discard(grads.offset, grads.bytes());
  }
  make_all_executors();
  if (program_) find_event_ends();
}

void DelegateEngine::find_event_ends() {
  event_end_.assign(record_.size(), 0);
  for (size_t i = 0; i < program_->instrs.size(); ++i) {
    const Instr& in = program_->instrs[i];
    if (!in.attrs.has("event")) continue;
    event_end_[static_cast<size_t>(in.attrs.integer("event"))] = static_cast<InstrId>(i + 1);
  }
  InstrId reached = 0;  // the end of a micro-step runs what belongs to it
  int32_t micro = 0;
  for (size_t e = 0; e < record_.size(); ++e) {
    if (record_[e].kind == HostEvent::Kind::end) {
      event_end_[e] = std::max(reached, program_->segments[static_cast<size_t>(micro++)].end);
    }
    reached = event_end_[e];
  }
}

void DelegateEngine::compare_records() {
  Hash128 hash;
  for (const HostEvent& e : events_) {
    hash.update(fmt::format("{}", static_cast<int>(e.kind)));
    hash.update(e.params.data(), e.params.size() * sizeof(int32_t));
  }
  std::string mine = hash.hex(), all(mine.size() * static_cast<size_t>(comm_.size()), ' ');
  comm_.all_gather(mine.data(), all.data(), mine.size(), "recorded order");
  for (int r = 0; r < comm_.size(); ++r) {
    if (all.compare(mine.size() * static_cast<size_t>(r), mine.size(), mine) == 0) continue;
    raise(DS_ERROR_COMM, "the host on rank {} made {} calls of step {} in another order than rank {}",
          comm_.rank(), events_.size(), scalars_.step, r);
  }
}

void DelegateEngine::host_call(const Instr& in, std::span<const TensorView> views) {
  if (in.op == "release") return;
  if (in.op == "grad") {
    if (in.attrs.has("event")) copy_grad(views[0].as<std::byte>(), views[0].numel());
    return;
  }
  if (in.op != "lease") return EngineCore::host_call(in, views);
  const std::vector<int32_t>& params = record_[static_cast<size_t>(in.attrs.integer("event"))].params;
  for (size_t k = 0; k < params.size(); ++k)
    where_[static_cast<size_t>(params[k])] = views[k].as<std::byte>();
}

DelegateEngine::Fragment& DelegateEngine::fragment(size_t bucket, int32_t micro) {
  Fragment& f = fragments_[{bucket, micro}];
  if (f.executor) return f;
  f.program =
      std::make_unique<Program>(micro < 0 ? gather_fragment(plan_, config_, options_.machine, bucket)
                                          : reduce_fragment(plan_, config_, options_.machine, bucket, micro));
  if (program_) {  // behind the recorded program's memory, where leases may still be
    for (Buffer& buffer : f.program->buffers) {
      if (buffer.residency != Residency::transient || buffer.tier == Tier::nvme) continue;
      buffer.offset += program_bytes(static_cast<int>(buffer.tier));
    }
  }
  overhead_.measure(kExecutorsPart, [&] { f.executor = executor(*f.program); });
  return f;
}

void DelegateEngine::gather_bucket(size_t bucket) {
  if (zero().buckets[bucket].partitioned) fragment(bucket, -1).executor->run();
}

// Reduces complete buckets in the canonical order: from the last bucket down. all: the micro-step is over and
// what has not come is zero.
void DelegateEngine::reduce_ready(bool all) {
  for (; next_reduce_ >= 0; --next_reduce_) {
    size_t b = static_cast<size_t>(next_reduce_);
    if (missing_[b] < 0 || !zero().trains(b)) continue;
    if (missing_[b] > 0 && !all) return;
    for (const ParamPlace& place : zero().layout.buckets[b].params) {
      if (has_grad_[static_cast<size_t>(place.param)]) continue;
      std::memset(grad_address(place.param), 0, static_cast<size_t>(place.numel * size_of(config_.compute)));
    }
    fragment(b, micro_).executor->run();
  }
}

std::byte* DelegateEngine::lease_address(int32_t param) const {
  return address(plan_.lease[bucket_of(param)]) + zero().layout.place(param).begin * size_of(config_.compute);
}

std::byte* DelegateEngine::grad_address(int32_t param) const {
  return address(plan_.grads[bucket_of(param)]) + zero().layout.place(param).begin * size_of(config_.compute);
}

void DelegateEngine::copy_grad(std::byte* to, int64_t numel) const {
  if (pending_dtype_ == config_.compute) {
    std::memcpy(to, pending_grad_, static_cast<size_t>(numel * size_of(config_.compute)));
    return;
  }
  narrow(config_.compute, static_cast<const float*>(pending_grad_), numel, to);
}

}  // namespace ds
