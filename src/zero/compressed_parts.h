#pragma once
#include <optional>

#include "core/config/config.h"
#include "core/program/builder.h"
#include "zero/policy.h"
#include "zero/sign_exchange.h"

namespace ds {

// What updates of steps whose gradients stay on their rank have in common.

// Calls f with each bucket that is trained, in the order of reductions: the last one first.
template <typename F>
void for_trained_buckets(const ZeroPlan& plan, const F& f) {
  for (BucketId b = plan.buckets.last(); b.exists(); --b) {
    if (plan.trains(b)) f(b);
  }
}

// The whole momentum of a bucket takes up this rank's own gradient.
void emit_own_momentum(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config,
                       BucketId b);
// The update of this rank's part by moments that are given.
void emit_frozen_adam(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config,
                      BucketId b);
// Of a bucket's trained tensors, with the bucket's errors; none on a single rank.
std::optional<SignExchange> exchange_of(ProgramBuilder& builder, const ZeroPlan& plan, BucketId b);

}  // namespace ds
