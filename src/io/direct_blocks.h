#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace ds {

// Memory of transfers past the page cache: a few blocks in huge pages where the system has them. Of a block
// in pages of 4 KiB each page is a segment of its own, a disk takes a few hundred segments a request, and a
// request costs more than its bytes: transfers were three times as slow (docs/adr/0046). One reader or writer
// at a time uses them; a block is taken from the system when it is first wanted.
class DirectBlocks {
 public:
  static constexpr int64_t kBytes = int64_t{4} << 20;
  static constexpr int64_t kPage = 4096;  // what O_DIRECT wants everything to be a multiple of
  static constexpr int kCount = 3;

  // Block `index` of kCount, page-aligned.
  std::byte* block(int index);

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::array<std::unique_ptr<std::byte, Free>, kCount> blocks_;
};

}  // namespace ds
