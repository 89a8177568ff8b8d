#pragma once
#include <string>

#include "io/file.h"

namespace ds::test {

// Damages a file without changing its size: flips the lowest bit of one byte.
inline void flip_byte(const std::string& path, int64_t offset) {
  File file(path, File::Mode::write);
  char byte = 0;
  file.read(&byte, 1, offset);
  byte = static_cast<char>(byte ^ 1);
  file.write(&byte, 1, offset);
}

}  // namespace ds::test
