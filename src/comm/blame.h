#pragma once

namespace ds {

// Tells the launcher of this process, if there is one, that a group ends here because `rank` (its
// number in the world) has left, died, made no progress or aborted; the launcher then looks for the
// first failure on other ranks. The launcher uses only the first call of a process. A call for a
// world of another size than the launcher's does nothing; world_size 0: the size is not known.
void blame_rank(int rank, int world_size);

}  // namespace ds
