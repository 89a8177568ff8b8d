#pragma once
#include "core/program/program.h"

namespace ds {

// Sets the waits of every instruction, so that queues and waits order every conflict on its
// physical bytes, including reuse of memory. A conflict that earlier waits already order gets no
// wait. Conflicts with saves of the program's previous run become waits with run_before.
void insert_waits(Program& program);

}  // namespace ds
