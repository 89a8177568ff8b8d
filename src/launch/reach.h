#pragma once
#include <sys/types.h>

namespace ds {

// Returns whether a process of this user is connected to a host that cannot be reached: one of its
// TCP connections has retransmitted the same bytes for about half a minute. The kernel itself would
// give up only after a quarter of an hour, and the keep-alives of a connection begin only when all
// sent bytes have been acknowledged.
bool is_cut_off(pid_t process);

}  // namespace ds
