#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "io/direct_blocks.h"

namespace ds {

// A writer of large amounts of data to a file that already has its full size. It bypasses the page
// cache if the file system supports O_DIRECT. Once a block is full, a thread writes its whole pages
// directly while the caller fills the next block. The partial pages at both ends of a contiguous
// run go through the cache, because other writers may own the rest of those pages. Errors are those
// of File; a later call throws them.
class DirectWriter {
 public:
  // `blocks` must not be used elsewhere until the writer has been destroyed.
  DirectWriter(const std::string& path, DirectBlocks& blocks);
  // Without a successful finish(), drops the blocks that are not yet written. Blocks already
  // written stay in the file.
  ~DirectWriter();
  DirectWriter(const DirectWriter&) = delete;
  DirectWriter& operator=(const DirectWriter&) = delete;

  void write(const void* data, size_t bytes, int64_t offset);
  // Returns once all data is on the disk (fdatasync). No other call may follow.
  void finish();

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

}  // namespace ds
