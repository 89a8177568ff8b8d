#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "io/direct_blocks.h"
#include "io/file.h"

namespace ds {

// A reader of large parts of a file, such as the data of tensors. It reads ahead of the caller, and
// without the page cache if the file system supports O_DIRECT. Use File for headers.
class DirectReader {
 public:
  // `blocks` must not be used elsewhere while read() runs.
  DirectReader(const std::string& path, DirectBlocks& blocks);

  // Bytes [begin, begin + bytes) of the file; `tag` is for the caller's use.
  struct Range {
    int64_t begin = 0, bytes = 0, tag = 0;
  };
  // Stores the next range in `range`; returns false after the last one.
  using Next = std::function<bool(Range& range)>;
  // Receives the bytes of a part of a range.
  using Use = std::function<void(const Range& part, const std::byte* data)>;

  // Calls use() for each range that next() yields, in this order and possibly in several parts.
  // Parts begin at multiples of 4 bytes if the range does. Ranges in ascending order are read
  // fastest, and ranges may overlap. next() is called some blocks ahead of use(). Both run on the
  // caller's thread, and an exception in either ends the reading. Throws DS_ERROR_IO with path and
  // reason if the file cannot be read, and DS_ERROR_CORRUPT if it ends before a range does.
  void read(const Next& next, const Use& use);

 private:
  class Work;
  DirectBlocks& blocks_;
  File cached_, direct_;
  int64_t size_ = 0;
};

}  // namespace ds
