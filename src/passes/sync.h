#pragma once
#include "core/program/program.h"

namespace ds {

// Sets the waits of every instruction: the fewest earlier instructions on other queues that cover
// every conflict on its physical bytes, including reuse of memory. Conflicts with saves of the
// program's previous run become waits with run_before.
void insert_waits(Program& program);

}  // namespace ds
