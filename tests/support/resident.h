#pragma once
#include <unistd.h>

#include <cstdint>
#include <fstream>

namespace ds::test {

// Returns the number of resident bytes of anonymous memory of this process.
inline int64_t resident_bytes() {
  int64_t size = 0, resident = 0, of_files = 0;
  std::ifstream("/proc/self/statm") >> size >> resident >> of_files;
  return (resident - of_files) * sysconf(_SC_PAGESIZE);
}

}  // namespace ds::test
