#pragma once

namespace ds {

// Tells the launcher of this process, if there is one, that a group ends here because another rank
// has left, died, stood still or ended it: then the launcher looks for its first failure elsewhere.
// `rank` is a rank of the world. The first call counts, and one about another world than the
// launcher's does nothing; a world_size of 0 is not known.
void blame_rank(int rank, int world_size);

}  // namespace ds
