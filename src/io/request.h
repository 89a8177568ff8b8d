#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "io/file.h"

namespace ds {

// One transfer between memory and a file. If the file was opened with O_DIRECT, offset, bytes and
// data must be multiples of 4096.
struct IoRequest {
  bool write = false;
  const File* file = nullptr;
  int64_t offset = 0;
  void* data = nullptr;
  size_t bytes = 0;
  // The name of the transfer in errors and traces.
  std::string label;
  // Called on the lane's thread before the transfer starts. It may block, for example until another
  // lane has finished a transfer.
  std::function<void()> ready;
};

}  // namespace ds
