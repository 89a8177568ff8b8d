#include "io/direct_blocks.h"

#include <sys/mman.h>

#include <new>

namespace ds {

DirectBlocks::~DirectBlocks() {
  if (mapped_) munmap(mapped_, kMapped);
}

// Maps the memory instead of using malloc: once a large block is freed, malloc raises its mmap
// threshold and would keep later blocks of that size.
std::byte* DirectBlocks::block(int index) {
  if (!mapped_) {
    void* made = mmap(nullptr, kMapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) throw std::bad_alloc();
    mapped_ = static_cast<std::byte*>(made);
    // If the kernel does not follow this advice, transfers are only slower.
    madvise(mapped_, kMapped, MADV_HUGEPAGE);
  }
  const auto address = reinterpret_cast<uintptr_t>(mapped_);
  const auto aligned = (address + kHugePage - 1) / kHugePage * kHugePage;
  return mapped_ + (aligned - address) + index * kBytes;
}

}  // namespace ds
