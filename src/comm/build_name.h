#pragma once
#include <string>

namespace ds {

// The build of libds that a rank runs. Ranks exchange it before anything else, and other versions
// must be able to read it, so its layout never changes.
struct BuildName {
  char text[64] = {};

  static BuildName own();
};

// Returns "" if two ranks run the same build, otherwise a line that names both.
std::string builds_differ(int rank, const BuildName& mine, int other, const BuildName& theirs);

}  // namespace ds
