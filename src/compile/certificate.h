#pragma once
#include <span>
#include <string>
#include <vector>

#include "compile/plan.h"
#include "core/program/program.h"

namespace ds {

// Returns the certificate of programs (docs/concepts/certificate.md): for every rank, in order, the
// text of its programs and what libds claims about them.
std::string certificate(std::span<const std::vector<const Program*>> ranks);

// Returns the certificate of all programs of the plans of all ranks.
std::string certificate(std::span<const Plan* const> ranks);

// Returns the programs of one rank's plan, in the form that the first function expects.
std::vector<const Program*> programs_of(const Plan& plan);

}  // namespace ds
