#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "io/direct_blocks.h"

namespace ds {

// Writes much to a file that has its full size, past the page cache where the file system can:
// whole pages with O_DIRECT by a thread of its own while the caller makes the next block, the edges
// of what is contiguous through the cache, because others may write to the rest of their pages.
// Errors are those of File, thrown by a later call.
class DirectWriter {
 public:
  // `blocks` are used by nobody else until the writer has ended.
  DirectWriter(const std::string& path, DirectBlocks& blocks);
  ~DirectWriter();  // what has not been finished is lost
  DirectWriter(const DirectWriter&) = delete;
  DirectWriter& operator=(const DirectWriter&) = delete;

  void write(const void* data, size_t bytes, int64_t offset);
  void finish();  // everything is on the disk (fdatasync); the last call

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

}  // namespace ds
