#pragma once
#include <optional>

#include "core/config/config.h"
#include "core/program/builder.h"
#include "update/onebit/signs.h"
#include "zero/zero_plan.h"

namespace ds {

// Helpers for the updates of steps whose gradients stay on their rank.

// Calls f with each bucket that is trained, in the order of reductions: the last one first.
template <typename F>
void for_trained_buckets(const ZeroPlan& plan, const F& f) {
  for (BucketId b = plan.buckets.last(); b.exists(); --b) {
    if (plan.trains(b)) f(b);
  }
}

// Adds this rank's own gradient to the whole momentum of a bucket.
void emit_own_momentum(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config,
                       BucketId b);
// Updates this rank's part with the momentum and the frozen variance.
void emit_frozen_adam(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config,
                      BucketId b);
// Returns the exchange that averages a bucket's trained tensors and keeps its errors in the
// bucket's states. Returns nullopt on a single rank, which exchanges nothing.
std::optional<SignExchange> exchange_of(ProgramBuilder& builder, const ZeroPlan& plan, BucketId b);

}  // namespace ds
