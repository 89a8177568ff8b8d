#pragma once
#include <string>

namespace ds {

// The build of libds that a rank runs, as ranks tell each other before anything else. Other
// versions must be able to read it, so its layout never changes.
struct BuildName {
  char text[64] = {};

  static BuildName own();
};

// "" when two ranks run the same build, else a line that names both.
std::string builds_differ(int rank, const BuildName& mine, int other, const BuildName& theirs);

}  // namespace ds
