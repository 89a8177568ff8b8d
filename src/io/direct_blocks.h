#pragma once
#include <cstddef>
#include <cstdint>

namespace ds {

// Memory of transfers past the page cache: a few blocks in huge pages where the system has them. Of
// a block in pages of 4 KiB each page is a segment of its own, a disk takes a few hundred segments
// a request, and a request costs more than its bytes: transfers were three times as slow
// (docs/adr/0046). One reader or writer at a time uses them; they are mapped when the first is
// wanted.
class DirectBlocks {
 public:
  static constexpr int64_t kBytes = int64_t{4} << 20;
  static constexpr int64_t kPage = 4096;  // what O_DIRECT wants everything to be a multiple of
  static constexpr int kCount = 3;
  static constexpr int64_t kHugePage = int64_t{2} << 20;
  static constexpr int64_t kMapped =
      kCount * kBytes + kHugePage;  // of address space; what is used is resident

  DirectBlocks() = default;
  ~DirectBlocks();
  DirectBlocks(const DirectBlocks&) = delete;
  DirectBlocks& operator=(const DirectBlocks&) = delete;

  // Block `index` of kCount, page-aligned.
  std::byte* block(int index);

 private:
  std::byte* mapped_ = nullptr;
};

}  // namespace ds
