#pragma once
#include <functional>
#include <string_view>

#include "comm/communicator.h"

namespace ds {

// Runs `body` on every rank and exchanges how it ended: if it threw on any rank, all ranks throw the error of
// the lowest such rank, so that no rank waits for one that gave up. Collective; body itself must not
// communicate.
void agree(Communicator& comm, std::string_view label, const std::function<void()>& body);

}  // namespace ds
