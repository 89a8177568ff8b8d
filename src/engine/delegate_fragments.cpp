// Implements delegate mode call by call: a short program runs for each bucket that is gathered or
// reduced.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "compile/delegate.h"
#include "compile/plan.h"
#include "engine/delegate.h"
#include "zero/reduce.h"

namespace ds {

// A fragment is compiled when it first runs. Its transient memory is placed after that of the
// recorded program, which may still contain leases.
void DelegateEngine::run_fragment(const ProgramKey& key) {
  if (has_executor(key)) return executor(key).run();
  Program program = make_fragment(plan_, config(), machine(), key);
  for (Buffer& buffer : program.buffers) {
    const bool placed = buffer.residency == Residency::transient && buffer.offset >= 0;
    if (placed && buffer.tier != Tier::nvme) buffer.offset += program_bytes(buffer.tier);
  }
  plan_.programs.insert_or_assign(key, std::move(program));
  make_executor_late(key).run();
}

void DelegateEngine::lease(ParamId param) {
  BucketId b = store_.bucket_of(param);
  leases_.params[param].place = leases_.own_place(param);
  // The first lease of a bucket gathers all of it.
  if (plan_.zero.buckets[b].partitioned && leases_.buckets[b].leases++ == 0)
    run_fragment({ProgramKind::gather, b});
}

// A lease in the recorded program's memory needs no action here, as the program itself frees the
// memory. With sanity_checks nothing is recorded: all bytes of an ended lease become 0xff, which is
// a NaN in each compute type, until the bucket is gathered again.
void DelegateEngine::end_lease(ParamId param) {
  constexpr int kNan = 0xff;
  const bool checks = config().zero.sanity_checks;
  BucketId b = store_.bucket_of(param);
  if (const auto& copy = leases_.params[param].copy; copy && checks)
    std::memset(copy->address(), kNan, static_cast<size_t>(leases_.shaped(param).bytes()));
  bool own = leases_.params[param].place.buffer == leases_.own_place(param).buffer;
  leases_.params[param].place = {};
  leases_.params[param].copy = nullptr;
  if (!own || !plan_.zero.buckets[b].partitioned || --leases_.buckets[b].leases > 0) return;
  runtime_.settle();
  const Buffer& buffer = runtime_.buffer(plan_.host.lease[b]);
  if (checks) return runtime_.memory().fill(buffer, 0, kNan, buffer.bytes());
  runtime_.memory().discard(buffer);
}

// Reduces complete buckets in the canonical order, from the last bucket down. With `all`, the
// micro-step is over, and gradients that the host has not passed are zero.
void DelegateEngine::reduce_ready(bool all) {
  for (; leases_.next_reduce.exists(); --leases_.next_reduce) {
    BucketId b = leases_.next_reduce;
    if (leases_.buckets[b].reduced || !plan_.zero.trains(b)) continue;
    if (leases_.buckets[b].missing > 0 && !all) return;
    for (const ParamPlace& place : plan_.zero.layout.buckets[b].params) {
      if (!leases_.params[place.param].grad.given) leases_.clear_grad(place.param);
    }
    // A step that is cut short ends with a micro-step without gradients.
    const MicroOfStep at{MicroId(micros_.done()), micros_.count() + (micros_.cut_short() ? 1 : 0)};
    run_fragment({b, reduced_alike(plan_.zero, at)});
    // The first step runs call by call. Without its pages of reduced gradients, its peak of memory
    // is that of the steps that follow.
    if (order_.recorded()) continue;
    runtime_.settle();
    runtime_.memory().discard(runtime_.buffer(plan_.host.grads[b]));
  }
}

}  // namespace ds
