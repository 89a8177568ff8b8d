#pragma once
#include <span>
#include <string>
#include <vector>

#include "compile/pipeline.h"

namespace ds {

// The certificate of programs (docs/concepts/certificate.md): for every rank, in their order, the text of
// its programs and what they claim about themselves.
std::string certificate(std::span<const std::vector<const Program*>> ranks);

// The same of all programs of a plan, given for every rank.
std::string certificate(std::span<const Plan* const> ranks);

}  // namespace ds
