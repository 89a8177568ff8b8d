#pragma once
#include <functional>
#include <string>
#include <vector>

#include "core/program/program.h"

namespace ds::test {

// A seeded fault. `apply` changes a compiled step; it returns false if the program contains nothing
// that the fault could change.
struct Fault {
  std::string name;
  std::function<bool(Program&)> apply;
};

// Returns the faults that do not depend on a configuration; dropped waits are not among them.
const std::vector<Fault>& faults();
// Returns faults of collectives in groups: one rank uses a wrong group, or no rank uses a group.
const std::vector<Fault>& group_faults();
// Returns faults of quantized weights and gradients.
const std::vector<Fault>& code_faults();
// Returns faults of gradients as rows.
const std::vector<Fault>& row_faults();

// Returns the indices (instruction, wait) of every wait of a program.
std::vector<std::pair<size_t, size_t>> waits_of(const Program& program);
// Returns the class of the hazard that `wait` of instruction `later` prevents, such as "read after
// write".
std::string hazard_of(const Program& program, InstrId later, const Wait& wait);
// Removes a wait, given by its indices as waits_of returns them.
void drop_wait(Program& program, std::pair<size_t, size_t> wait);

}  // namespace ds::test
