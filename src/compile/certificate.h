#pragma once
#include <span>
#include <string>
#include <vector>

#include "compile/decode_plan.h"
#include "compile/delegate.h"
#include "compile/pipeline.h"

namespace ds {

// The certificate of programs (docs/concepts/certificate.md): for every rank, in their order, the
// text of its programs and what they claim about themselves.
std::string certificate(std::span<const std::vector<const Program*>> ranks);

// The same of all programs of a plan, given for every rank.
std::string certificate(std::span<const Plan* const> ranks);

// The programs of a rank, as the first one takes them. Those of a delegate are the ones of every
// step, its fragments, and the recorded step, where there is one.
std::vector<const Program*> programs_of(const Plan& plan);
std::vector<const Program*> programs_of(const InferencePlan& plan);
std::vector<const Program*> programs_of(const DelegatePlan& plan,
                                        std::span<const Program> fragments,
                                        const Program* recorded = nullptr);

}  // namespace ds
