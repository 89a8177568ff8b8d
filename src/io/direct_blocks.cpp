#include "io/direct_blocks.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

namespace ds {

constexpr size_t kHugePage = size_t{2} << 20;

void DirectBlocks::Free::operator()(std::byte* memory) const { std::free(memory); }

std::byte* DirectBlocks::block(int index) {
  auto& block = blocks_.at(static_cast<size_t>(index));
  if (!block) {
    block.reset(static_cast<std::byte*>(std::aligned_alloc(kHugePage, size_t{kBytes})));
    if (!block) throw std::bad_alloc();
    madvise(block.get(), kBytes, MADV_HUGEPAGE);  // a wish: without it the block is slower
  }
  return block.get();
}

}  // namespace ds
