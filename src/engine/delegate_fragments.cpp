// Delegate mode call by call: a short program for each bucket that is gathered or reduced.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "compile/delegate.h"
#include "engine/delegate.h"
#include "zero/reduce.h"

namespace ds {

// What the call-by-call step needs: the largest transient memory of any fragment.
MemoryPlan DelegateEngine::fragment_memory(const DelegatePlan& plan) const {
  MemoryPlan memory;
  for (const Program* p : {&plan.init, &plan.refresh, &plan.update}) memory.add(*p);
  for (const Program& p : all_fragments(plan, config(), machine())) memory.add(p);
  return memory;
}

DelegateEngine::Fragment& DelegateEngine::fragment(BucketId bucket, MicroId micro) {
  Fragment& f = fragments_[{bucket, micro}];
  if (f.executor) return f;
  f.program = std::make_unique<Program>(
      !micro.exists() ? gather_fragment(plan_, config(), machine(), bucket)
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
  where_[param] = own_place(param);
  if (plan_.zero.buckets[b].partitioned && bucket_leases_[b]++ == 0)
    fragment(b, none).executor->run();
}

// Of a lease in the recorded program's memory the program takes care.
void DelegateEngine::end_lease(ParamId param) {
  BucketId b = store_.bucket_of(param);
  bool own = where_[param].buffer == own_place(param).buffer;
  where_[param] = {};
  copies_[param] = nullptr;
  if (!own || !plan_.zero.buckets[b].partitioned || --bucket_leases_[b] > 0) return;
  runtime_.settle();
  runtime_.discard(plan_.lease[b]);
}

// Reduces complete buckets in the canonical order: from the last bucket down. all: the micro-step
// is over and what has not come is zero.
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

DelegateEngine::LeasePlace DelegateEngine::own_place(ParamId param) const {
  return {&runtime_.buffer(plan_.lease[store_.bucket_of(param)]),
          plan_.zero.layout.place(param).begin * size_of(config().compute)};
}

void DelegateEngine::clear_grad(ParamId param) {
  const ParamPlace& place = plan_.zero.layout.place(param);
  int64_t unit = size_of(config().compute);
  runtime_.fill(runtime_.buffer(plan_.grads[store_.bucket_of(param)]), place.begin * unit, 0,
                place.numel * unit);
}

}  // namespace ds
