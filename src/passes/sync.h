#pragma once
#include "core/program/program.h"

namespace ds {

// Waits: for each instruction the fewest earlier ones on other queues that cover every conflict on
// its physical bytes, including reuse of memory; and the saves of the program's previous run, as
// waits with run_before.
void insert_waits(Program& program);

}  // namespace ds
