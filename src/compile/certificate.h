#pragma once
#include <span>
#include <string>
#include <vector>

#include "compile/plan.h"
#include "core/program/program.h"

namespace ds {

// Returns the certificate of programs (docs/concepts/certificate.md): for every rank, in the order
// of ranks, the text of its programs and the claims that they make about themselves.
std::string certificate(std::span<const std::vector<const Program*>> ranks);

// Returns the certificate of all programs of a plan that was compiled for every rank.
std::string certificate(std::span<const Plan* const> ranks);

// Returns the programs of one rank's plan, in the form that the first function expects.
std::vector<const Program*> programs_of(const Plan& plan);

}  // namespace ds
