#pragma once
#include <functional>
#include <string>
#include <vector>

#include "core/program/program.h"

namespace ds::test {

// A seeded fault: a change of a compiled step. apply returns false when the program has nothing to
// break that way.
struct Fault {
  std::string name;
  std::function<bool(Program&)> apply;
};

// Faults other than dropped waits.
const std::vector<Fault>& faults();
// Collectives whose group is lost: on one rank it is another one, or on all there is none.
const std::vector<Fault>& group_faults();
// Faults of quantized weights and gradients.
const std::vector<Fault>& code_faults();
// Faults of gradients as rows.
const std::vector<Fault>& row_faults();

// Every (instruction, wait) of a program.
std::vector<std::pair<size_t, size_t>> waits_of(const Program& program);
// The class of the hazard that a wait of instruction `later` orders: "read after write", ...
std::string hazard_of(const Program& program, InstrId later, const Wait& wait);
void drop_wait(Program& program, std::pair<size_t, size_t> wait);

}  // namespace ds::test
