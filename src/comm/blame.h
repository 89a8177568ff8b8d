#pragma once

namespace ds {

// Reports to the launcher of this process, if there is one, that this rank's group has ended
// because `rank` (its number in the world) has left, died, made no progress or aborted. When the
// launcher names the cause of a failed job, it then prefers another rank's failure to the failure
// of this rank. It uses only the first report of a process. A report from a world whose size is not
// the launcher's is not sent; pass world_size 0 if the size is not known.
void blame_rank(int rank, int world_size);

}  // namespace ds
