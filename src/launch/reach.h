#pragma once
#include <sys/types.h>

namespace ds {

// Whether a process of this user waits for a host that cannot be reached: over one of its TCP
// connections the same bytes have been sent again and again for about half a minute. The kernel
// itself would go on for a quarter of an hour, and the keep-alives of a connection begin only when
// nothing is on its way.
bool is_cut_off(pid_t process);

}  // namespace ds
