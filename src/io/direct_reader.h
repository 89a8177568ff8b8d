#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "io/direct_blocks.h"
#include "io/file.h"

namespace ds {

// Reads much of a file once, past the page cache where the file system can, ahead of its caller.
// What a file says of its tensors is read by File; this is for the bytes of the tensors.
class DirectReader {
 public:
  // `blocks` are used by nobody else meanwhile.
  DirectReader(const std::string& path, DirectBlocks& blocks);

  // Bytes [begin, begin + bytes) of the file; tag is the caller's.
  struct Range {
    int64_t begin = 0, bytes = 0, tag = 0;
  };
  using Next = std::function<bool(Range& range)>;  // false: there is no other
  using Use = std::function<void(const Range& part, const std::byte* data)>;

  // Calls use() for the ranges that next() gives, one after the other, each in parts that begin on
  // multiples of 4 bytes where the range does. The best order is ascending; ranges may share bytes.
  // next() is called some blocks ahead. Both run on the caller's thread, and what they throw ends
  // the reading. Errors of the file: DS_ERROR_IO with path and reason, DS_ERROR_CORRUPT where it
  // has ended.
  void read(const Next& next, const Use& use);

 private:
  class Work;
  DirectBlocks& blocks_;
  File cached_, direct_;
  int64_t size_ = 0;
};

}  // namespace ds
