#pragma once
#include <cstdint>

#include "checkpoint/agree.h"
#include "comm/communicator.h"
#include "core/base/stop.h"

namespace ds {

// Returns whether the stop flag of any rank is set. Collective.
inline bool stop_asked_of_any(Communicator& comm, const volatile int32_t* stop) {
  return agree_max(comm, stop_asked(stop) ? 1 : 0, "stop flag") != 0;
}

}  // namespace ds
