#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "io/file.h"

namespace ds {

// One transfer between memory and a file. With an O_DIRECT file, offset, bytes and data are
// multiples of 4096.
struct IoRequest {
  bool write = false;
  const File* file = nullptr;
  int64_t offset = 0;
  void* data = nullptr;
  size_t bytes = 0;
  std::string label;  // for errors and trace
  std::function<void()>
      ready;  // called on the lane before it starts; may block (waits for another lane)
};

}  // namespace ds
