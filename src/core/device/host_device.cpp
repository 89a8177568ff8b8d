#include "core/device/host_device.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/base/bytes_text.h"
#include "core/base/error.h"
#include "core/base/round.h"
#include "core/device/thread_queue.h"

namespace ds {

HostArena::HostArena(int64_t wanted) {
  if (wanted == 0) return;
  auto size = static_cast<size_t>(wanted);
  void* made = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) {
    raise(DS_ERROR_OUT_OF_MEMORY, "the system refuses an arena of {}: {}", bytes_text(wanted),
          std::strerror(errno));
  }
  address_ = static_cast<std::byte*>(made);
  bytes_ = wanted;
  // Huge pages help because matrices span far more small pages than the TLB has entries. The result
  // is ignored, because the system may refuse them.
  madvise(made, size, MADV_HUGEPAGE);
}

HostArena::~HostArena() {
  if (address_) munmap(address_, static_cast<size_t>(bytes_));
}

// mremap moves pages without copying them, and the system appends pages of zeros.
void HostArena::grow(int64_t wanted) {
  void* moved =
      mremap(address_, static_cast<size_t>(bytes_), static_cast<size_t>(wanted), MREMAP_MAYMOVE);
  if (moved == MAP_FAILED) {
    raise(DS_ERROR_OUT_OF_MEMORY, "the system refuses an arena of {} in place of {}: {}",
          bytes_text(wanted), bytes_text(bytes_), std::strerror(errno));
  }
  address_ = static_cast<std::byte*>(moved);
  bytes_ = wanted;
}

// Returns the whole pages within the range to the system, which provides zeros when they are next
// read.
void HostArena::discard(int64_t begin, int64_t end) {
  constexpr int64_t kPage = 4096;
  int64_t low = round_up(begin, kPage), high = end / kPage * kPage;
  if (low < high) madvise(address_ + low, static_cast<size_t>(high - low), MADV_DONTNEED);
}

void InlineQueue::copy(void* to, const void* from, int64_t bytes) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

void InlineQueue::fill(void* to, int byte, int64_t bytes) {
  std::memset(to, byte, static_cast<size_t>(bytes));
}

std::unique_ptr<Event> InlineQueue::make_event() const { return std::make_unique<TicketEvent>(); }

std::shared_ptr<Arena> HostDevice::make_arena(Place, int64_t bytes) {
  return std::make_shared<HostArena>(bytes);
}

// Reading a page of the old arena that was never written allocates no memory, because the system
// maps its shared page of zeros. copy_sparse() then does not write the page in the new arena.
std::shared_ptr<Arena> HostDevice::copy_arena(Place, const Arena& arena, int64_t bytes) {
  auto made = std::make_shared<HostArena>(bytes);
  if (arena.bytes() > 0) copy_sparse(made->address(), arena.address(), arena.bytes());
  return made;
}

std::unique_ptr<DeviceQueue> HostDevice::make_queue(const std::string&) {
  return std::make_unique<InlineQueue>();
}

void HostDevice::copy(void* to, const void* from, int64_t bytes) const {
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

void HostDevice::fill(void* to, int byte, int64_t bytes) const {
  std::memset(to, byte, static_cast<size_t>(bytes));
}

}  // namespace ds
