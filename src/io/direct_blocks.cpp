#include "io/direct_blocks.h"

#include <sys/mman.h>

#include <new>

namespace ds {

DirectBlocks::~DirectBlocks() {
  if (mapped_) munmap(mapped_, kMapped);
}

// Not from malloc, which keeps blocks of megabytes from the first on that it was given back.
std::byte* DirectBlocks::block(int index) {
  if (!mapped_) {
    void* made = mmap(nullptr, kMapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) throw std::bad_alloc();
    mapped_ = static_cast<std::byte*>(made);
    madvise(mapped_, kMapped, MADV_HUGEPAGE);  // a wish: without it the blocks are slower
  }
  const auto address = reinterpret_cast<uintptr_t>(mapped_);
  const auto aligned = (address + kHugePage - 1) / kHugePage * kHugePage;
  return mapped_ + (aligned - address) + index * kBytes;
}

}  // namespace ds
