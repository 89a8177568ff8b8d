#pragma once
#include <cstddef>
#include <cstdint>

namespace ds {

// Memory for transfers that bypass the page cache: a few blocks, in huge pages if the system has
// them. With 4 KiB pages, each page of a block is a separate segment of the I/O request, and a disk
// accepts only a few hundred segments for each request. The extra requests made transfers three
// times as slow (docs/adr/0046). Only one reader or writer may use the blocks at a time. They are
// mapped at the first call of block().
class DirectBlocks {
 public:
  static constexpr int64_t kBytes = int64_t{4} << 20;
  // Offsets, sizes and addresses of an O_DIRECT transfer must be multiples of this.
  static constexpr int64_t kPage = 4096;
  static constexpr int kCount = 3;
  static constexpr int64_t kHugePage = int64_t{2} << 20;
  // Bytes of address space. Only blocks that are used become resident.
  static constexpr int64_t kMapped = kCount * kBytes + kHugePage;

  DirectBlocks() = default;
  ~DirectBlocks();
  DirectBlocks(const DirectBlocks&) = delete;
  DirectBlocks& operator=(const DirectBlocks&) = delete;

  // Returns block `index` of kCount, aligned to a huge page.
  std::byte* block(int index);

 private:
  std::byte* mapped_ = nullptr;
};

}  // namespace ds
