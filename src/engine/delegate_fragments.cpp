// Delegate mode call by call: a short program for each bucket that is gathered or reduced.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "compile/delegate.h"
#include "engine/delegate.h"
#include "zero/insert.h"

namespace ds {

// What the call-by-call step needs: the largest transient memory of any fragment.
MemoryPlan DelegateEngine::fragment_memory(const DelegatePlan& plan) const {
  std::vector<Program> all{plan.init, plan.refresh, plan.update};
  for (BucketId b : plan.lease.ids()) {
    if (plan.zero.buckets[b].partitioned) all.push_back(gather_fragment(plan, config(), machine(), b));
    for (MicroId m(0); plan.zero.trains(b) && m < MicroId(config().accumulation); ++m) {
      if (reduced_alike(plan.zero, m) == m) all.push_back(reduce_fragment(plan, config(), machine(), b, m));
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

DelegateEngine::Fragment& DelegateEngine::fragment(BucketId bucket, MicroId micro) {
  Fragment& f = fragments_[{bucket, micro}];
  if (f.executor) return f;
  f.program =
      std::make_unique<Program>(!micro.exists() ? gather_fragment(plan_, config(), machine(), bucket)
                                                : reduce_fragment(plan_, config(), machine(), bucket, micro));
  if (record_) {  // behind the recorded program's memory, where leases may still be
    for (Buffer& buffer : f.program->buffers) {
      bool placed = buffer.residency == Residency::transient && buffer.offset >= 0;
      if (!placed || buffer.tier == Tier::nvme) continue;
      buffer.offset += program_bytes(static_cast<int>(buffer.tier));
    }
  }
  runtime_.make_executor_late([&] { f.executor = executor(*f.program); });
  return f;
}

void DelegateEngine::lease(ParamId param) {
  BucketId b = store_.bucket_of(param);
  where_[param] = lease_address(param);
  if (plan_.zero.buckets[b].partitioned && bucket_leases_[b]++ == 0) fragment(b, none).executor->run();
}

// Of a lease in the recorded program's memory the program takes care.
void DelegateEngine::end_lease(ParamId param) {
  BucketId b = store_.bucket_of(param);
  bool own = where_[param] == lease_address(param);
  where_[param] = nullptr;
  if (!own || !plan_.zero.buckets[b].partitioned || --bucket_leases_[b] > 0) return;
  runtime_.settle();
  runtime_.discard(plan_.lease[b]);
}

// Reduces complete buckets in the canonical order: from the last bucket down. all: the micro-step is over and
// what has not come is zero.
void DelegateEngine::reduce_ready(bool all) {
  for (; next_reduce_.exists(); --next_reduce_) {
    BucketId b = next_reduce_;
    if (reduced_[b] || !plan_.zero.trains(b)) continue;
    if (missing_[b] > 0 && !all) return;
    for (const ParamPlace& place : plan_.zero.layout.buckets[b].params) {
      if (!has_grad_[place.param]) clear_grad(place.param);
    }
    fragment(b, reduced_alike(plan_.zero, MicroId(micro_))).executor->run();
  }
}

std::byte* DelegateEngine::lease_address(ParamId param) const {
  return runtime_.address(plan_.lease[store_.bucket_of(param)]) +
         plan_.zero.layout.place(param).begin * size_of(config().compute);
}

void DelegateEngine::clear_grad(ParamId param) {
  const ParamPlace& place = plan_.zero.layout.place(param);
  int64_t unit = size_of(config().compute);
  runtime_.fill(runtime_.buffer(plan_.grads[store_.bucket_of(param)]), place.begin * unit, 0,
                place.numel * unit);
}

// The pending gradient, in its place of the call-by-call step.
void DelegateEngine::put_grad(ParamId param) {
  const Buffer& grads = runtime_.buffer(plan_.grads[store_.bucket_of(param)]);
  const ParamPlace& place = plan_.zero.layout.place(param);
  if (pending_dtype_ == grads.dtype) {
    int64_t unit = size_of(grads.dtype);
    runtime_.write(grads, place.begin * unit, pending_grad_, place.numel * unit);
  } else {
    runtime_.write_floats(grads, place.begin, place.numel, static_cast<const float*>(pending_grad_));
  }
}

}  // namespace ds
