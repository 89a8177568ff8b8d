// Problem. Two kinds of error appear only on a GPU: host code that uses an address of the device,
// and work that depends on an order that no wait ensures. Tests should find them on any machine.
//
// Algorithm. An arena has two ranges of addresses: an inaccessible one, which the rest of libds
// uses, and the alias, at which a file in memory is mapped and which reach() returns to the
// device's queues. Each arena has a slot with its addresses. Threads of queues read slots without a
// lock (write(), reach()), because a lock would order threads that nothing else orders, and so hide
// a missing wait from ThreadSanitizer.

#include "core/device/separate_device.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/base/bytes_text.h"
#include "core/base/error.h"
#include "core/base/interrupted.h"
#include "core/base/memory_file.h"
#include "core/device/host_device.h"

namespace ds {
namespace {

constexpr int64_t kPageBytes = 4096;

[[noreturn]] void refuse(const char* request, int64_t bytes) {
  raise(DS_ERROR_OUT_OF_MEMORY, "the system refuses {} of {}: {}", request, bytes_text(bytes),
        std::strerror(errno));
}

}  // namespace

// An arena: a memory file, which is mapped at the alias, and reserved addresses of the same size,
// which begin at address().
class SeparateDevice::Memory final : public Arena {
 public:
  Memory(SeparateDevice& device, int64_t wanted) : device_(device) {
    if (wanted == 0) return;
    try {
      map(wanted);
    } catch (const Error&) {
      if (address_) unmap(address_, bytes_);
      if (alias_) unmap(alias_, bytes_);
      if (file_ >= 0) close(file_);
      throw;
    }
  }

  ~Memory() override {
    if (!address_) return;
    device_.vacate(slot_);
    unmap(address_, bytes_);
    unmap(alias_, bytes_);
    close(file_);
  }

  // Old mappings are removed only after the new ones exist.
  void grow(int64_t wanted) override {
    std::byte *address = address_, *alias = alias_;
    int64_t bytes = bytes_;
    map(wanted);
    if (!address) return;
    unmap(address, bytes);
    unmap(alias, bytes);
  }

  // A hole in the file frees its pages; the alias then reads zeros.
  void discard(int64_t begin, int64_t end) override {
    int64_t low = (begin + kPageBytes - 1) / kPageBytes * kPageBytes,
            high = end / kPageBytes * kPageBytes;
    if (low >= high) return;
    constexpr int kHole = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    uninterrupted([&] { return fallocate(file_, kHole, low, high - low); });
  }

  std::byte* alias() const { return alias_; }

 private:
  static void unmap(std::byte* at, int64_t bytes) { munmap(at, static_cast<size_t>(bytes)); }

  // Maps the file at a new alias, reserves a new address, and registers both in the arena's slot.
  void map(int64_t wanted) {
    auto size = static_cast<size_t>(wanted);
    if (file_ < 0) file_ = memory_file("separate");
    if (file_ < 0) refuse("a file in memory for an arena", wanted);
    if (uninterrupted([&] { return ftruncate(file_, wanted); }) != 0) refuse("an arena", wanted);
    void* alias = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (alias == MAP_FAILED) refuse("an arena", wanted);
    void* reserved =
        mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) {
      munmap(alias, size);
      refuse("addresses for an arena", wanted);
    }
    alias_ = static_cast<std::byte*>(alias);
    address_ = static_cast<std::byte*>(reserved);
    bytes_ = wanted;
    slot_ = device_.place(*this, slot_);
  }

  SeparateDevice& device_;
  size_t slot_ = kMostArenas;
  int file_ = -1;
  std::byte* alias_ = nullptr;
};

// Assigns the first free slot to a new arena.
size_t SeparateDevice::place(const Memory& arena, size_t slot) {
  std::lock_guard lock(changing_);
  size_t used = used_.load(std::memory_order_relaxed);
  if (slot == kMostArenas) {
    slot = 0;
    while (slot < used && slots_[slot].begin.load(std::memory_order_relaxed)) ++slot;
  }
  if (slot == kMostArenas)
    raise(DS_ERROR_OUT_OF_MEMORY, "device 'separate' has at most {} arenas, which are all in use",
          kMostArenas);
  write(slots_[slot], arena.address(), arena.address() + arena.bytes(), arena.alias());
  if (slot == used) used_.store(used + 1, std::memory_order_release);
  return slot;
}

void SeparateDevice::vacate(size_t slot) {
  std::lock_guard lock(changing_);
  write(slots_[slot], nullptr, nullptr, nullptr);
}

// The write side of a seqlock. The stores are releases, so a reader that sees one of the new values
// also sees that the version is odd or has changed.
void SeparateDevice::write(Slot& slot, std::byte* begin, std::byte* end, std::byte* alias) {
  uint32_t version = slot.version.load(std::memory_order_relaxed);
  slot.version.store(version + 1, std::memory_order_relaxed);
  slot.begin.store(begin, std::memory_order_release);
  slot.end.store(end, std::memory_order_release);
  slot.alias.store(alias, std::memory_order_release);
  slot.version.store(version + 2, std::memory_order_release);
}

// The read side of the seqlock: reads a slot again if its version was odd or has changed.
void* SeparateDevice::reach(void* address) const {
  auto* at = static_cast<std::byte*>(address);
  size_t used = used_.load(std::memory_order_acquire);
  for (size_t i = 0; i < used; ++i) {
    const Slot& slot = slots_[i];
    for (;;) {
      uint32_t version = slot.version.load(std::memory_order_acquire);
      std::byte* begin = slot.begin.load(std::memory_order_acquire);
      std::byte* end = slot.end.load(std::memory_order_acquire);
      std::byte* alias = slot.alias.load(std::memory_order_acquire);
      if (version % 2 != 0 || slot.version.load(std::memory_order_relaxed) != version) continue;
      if (at >= begin && at < end) return alias + (at - begin);
      break;
    }
  }
  // The address is in no arena, so it belongs to the host.
  return at;
}

std::shared_ptr<Arena> SeparateDevice::make_arena(Place place, int64_t bytes) {
  if (place == Place::host) return std::make_shared<HostArena>(bytes);
  return std::make_shared<Memory>(*this, bytes);
}

std::shared_ptr<Arena> SeparateDevice::copy_arena(Place place, const Arena& arena, int64_t bytes) {
  std::shared_ptr<Arena> made = make_arena(place, bytes);
  auto there = [&](const Arena& a) { return static_cast<std::byte*>(reach(a.address())); };
  if (arena.bytes() > 0) copy_sparse(there(*made), there(arena), arena.bytes());
  return made;
}

std::unique_ptr<DeviceQueue> SeparateDevice::make_queue(const std::string& name) {
  return std::make_unique<ThreadQueue>(*this, name, delays_);
}

void SeparateDevice::copy(void* to, const void* from, int64_t bytes) const {
  std::memcpy(reach(to), reach(const_cast<void*>(from)), static_cast<size_t>(bytes));
}

void SeparateDevice::fill(void* to, int byte, int64_t bytes) const {
  std::memset(reach(to), byte, static_cast<size_t>(bytes));
}

}  // namespace ds
