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
namespace {

constexpr int64_t kPage = 4096;
// If parameters are trained later, up to 30 bytes of states are added to the 2 bytes of each copy,
// so an arena may become 16 times as large. Twice that is reserved.
constexpr int64_t kReservedTimes = 32;

// Maps `bytes` of addresses; MAP_FAILED if the system refuses. Without access they cost no memory.
void* map(int64_t bytes, int access) {
  return mmap(nullptr, static_cast<size_t>(bytes), access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

// Requests huge pages, because matrices span far more small pages than the TLB has entries. The
// result is ignored.
void want_huge_pages(std::byte* at, int64_t bytes) {
  madvise(at, static_cast<size_t>(bytes), MADV_HUGEPAGE);
}

// Gives memory to the bytes from `begin` on, in whole pages.
bool back(std::byte* address, int64_t begin, int64_t end) {
  begin = begin / kPage * kPage;
  return mprotect(address + begin, static_cast<size_t>(end - begin), PROT_READ | PROT_WRITE) == 0;
}

}  // namespace

HostArena::HostArena(int64_t wanted) {
  if (wanted == 0) return;
  reserved_ = round_up(kReservedTimes * wanted, kPage);
  void* made = map(reserved_, PROT_NONE);
  if (made == MAP_FAILED || !back(static_cast<std::byte*>(made), 0, wanted)) {
    if (made != MAP_FAILED) munmap(made, static_cast<size_t>(reserved_));
    // The process may have a limit on addresses.
    reserved_ = round_up(wanted, kPage);
    made = map(reserved_, PROT_READ | PROT_WRITE);
  }
  if (made == MAP_FAILED) {
    raise(DS_ERROR_OUT_OF_MEMORY, "the system refuses an arena of {}: {}", bytes_text(wanted),
          std::strerror(errno));
  }
  address_ = static_cast<std::byte*>(made);
  bytes_ = wanted;
  want_huge_pages(address_, bytes_);
}

HostArena::~HostArena() {
  if (address_) munmap(address_, static_cast<size_t>(reserved_));
}

void HostArena::grow(int64_t wanted) {
  void* moved = address_;
  if (grows_in_place(wanted)) {
    if (!back(address_, bytes_, wanted)) moved = MAP_FAILED;
  } else {
    // mremap moves pages without copying them, and the system appends pages of zeros.
    moved =
        mremap(address_, static_cast<size_t>(bytes_), static_cast<size_t>(wanted), MREMAP_MAYMOVE);
  }
  if (moved == MAP_FAILED) {
    raise(DS_ERROR_OUT_OF_MEMORY, "the system refuses an arena of {} in place of {}: {}",
          bytes_text(wanted), bytes_text(bytes_), std::strerror(errno));
  }
  if (!grows_in_place(wanted)) {
    // The addresses after the moved pages are still reserved.
    const int64_t used = round_up(bytes_, kPage);
    if (used < reserved_) munmap(address_ + used, static_cast<size_t>(reserved_ - used));
    address_ = static_cast<std::byte*>(moved);
    reserved_ = round_up(wanted, kPage);
  }
  want_huge_pages(address_, wanted);
  bytes_ = wanted;
}

// Returns the whole pages within the range to the system, which provides zeros when they are next
// read.
void HostArena::discard(int64_t begin, int64_t end) {
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
