// Delegate mode call by call: a short program for each bucket that is gathered or reduced.
#include <algorithm>
#include <cstring>

#include "core/base/half.h"
#include "engine/delegate.h"

namespace ds {

// What the call-by-call step needs: the largest transient memory of any fragment.
MemoryPlan DelegateEngine::fragment_memory(const DelegatePlan& plan) const {
  std::vector<Program> all{plan.init, plan.refresh, plan.update};
  for (BucketId b : plan.lease.ids()) {
    if (plan.zero.buckets[b].partitioned) all.push_back(gather_fragment(plan, config_, options_.machine, b));
    for (int32_t m = 0; plan.zero.trains(b) && m < config_.accumulation; ++m) {
      all.push_back(reduce_fragment(plan, config_, options_.machine, b, m));
    }
  }
  MemoryPlan memory;
  for (const Program& p : all) {
    for (int t = 0; t < 3; ++t) {
      memory.tiers[t].persistent = std::max(memory.tiers[t].persistent, p.arenas[t].persistent);
      memory.tiers[t].transient = std::max(memory.tiers[t].transient, p.arenas[t].transient);
    }
  }
  return memory;
}

DelegateEngine::Fragment& DelegateEngine::fragment(BucketId bucket, int32_t micro) {
  Fragment& f = fragments_[{bucket, micro}];
  if (f.executor) return f;
  f.program =
      std::make_unique<Program>(micro < 0 ? gather_fragment(plan_, config_, options_.machine, bucket)
                                          : reduce_fragment(plan_, config_, options_.machine, bucket, micro));
  if (record_) {  // behind the recorded program's memory, where leases may still be
    for (Buffer& buffer : f.program->buffers) {
      bool placed = buffer.residency == Residency::transient && buffer.offset >= 0;
      if (!placed || buffer.tier == Tier::nvme) continue;
      buffer.offset += program_bytes(static_cast<int>(buffer.tier));
    }
  }
  overhead_.measure(kExecutorsPart, [&] { f.executor = executor(*f.program); });
  return f;
}

void DelegateEngine::lease(ParamId param) {
  BucketId b = bucket_of(param);
  where_[param] = lease_address(param);
  if (zero().buckets[b].partitioned && bucket_leases_[b]++ == 0) fragment(b, -1).executor->run();
}

// Of a lease in the recorded program's memory the program takes care.
void DelegateEngine::end_lease(ParamId param) {
  BucketId b = bucket_of(param);
  bool own = where_[param] == lease_address(param);
  where_[param] = nullptr;
  if (!own || !zero().buckets[b].partitioned || --bucket_leases_[b] > 0) return;
  const Buffer& lease = placed().buffers[plan_.lease[b]];
  own_memory().discard(lease.offset, lease.bytes());
}

// Reduces complete buckets in the canonical order: from the last bucket down. all: the micro-step is over and
// what has not come is zero.
void DelegateEngine::reduce_ready(bool all) {
  for (; next_reduce_.exists(); --next_reduce_) {
    BucketId b = next_reduce_;
    if (reduced_[b] || !zero().trains(b)) continue;
    if (missing_[b] > 0 && !all) return;
    for (const ParamPlace& place : zero().layout.buckets[b].params) {
      if (has_grad_[place.param]) continue;
      std::memset(grad_address(place.param), 0, static_cast<size_t>(place.numel * size_of(config_.compute)));
    }
    fragment(b, micro_).executor->run();
  }
}

std::byte* DelegateEngine::lease_address(ParamId param) const {
  return address(plan_.lease[bucket_of(param)]) + zero().layout.place(param).begin * size_of(config_.compute);
}

std::byte* DelegateEngine::grad_address(ParamId param) const {
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
