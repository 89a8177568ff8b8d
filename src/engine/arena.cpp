// Problem: a plan gives every buffer a tier and an offset, and the engine must own the bytes.
// Device and host each have two arenas: a persistent one, whose contents live as long as the
// engine, and a transient one, which programs share. The nvme tier is one scratch file.
// Invariant: the address of a buffer is its arena's address plus its offset, so addresses change
// only when an arena is replaced (grow, resize_transient). A held arena is never unmapped or moved.
#include "engine/arena.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/half.h"
#include "core/base/log.h"
#include "core/base/round.h"
#include "core/base/tier.h"
#include "core/program/program.h"
#include "io/file.h"

namespace ds {
namespace {

Device::Place place_of(int tier) {
  return tier == static_cast<int>(Tier::device) ? Device::Place::device : Device::Place::host;
}

}  // namespace

std::shared_ptr<Arena> EngineMemory::make(int tier, int64_t bytes) const {
  return device_.make_arena(place_of(tier), bytes);
}

EngineMemory::EngineMemory(Device& device, const MemoryPlan& plan, const std::string& nvme_folder,
                           std::function<void()> settle)
    : device_(device), folder_(nvme_folder), settle_(std::move(settle)) {
  for (int tier = 0; tier < 2; ++tier) {
    arenas_[tier][0] = make(tier, plan.tiers[tier].persistent);
    arenas_[tier][1] = make(tier, plan.tiers[tier].transient);
  }
  file_bytes_ = plan.total(Tier::nvme);
  if (file_bytes_ > 0) open_file();
}

void EngineMemory::open_file() {
  if (folder_.empty()) raise(DS_ERROR_CONFIG, "offload to nvme needs nvme_path, got none");
  make_folders(folder_);
  try {
    file_ = File::scratch(folder_, true);
  } catch (const Error&) {
    file_ = File::scratch(folder_, false);
    log_line(LogLevel::warning, "nvme_path '" + folder_ +
                                    "' does not support O_DIRECT: files go through the page cache");
  }
  file_.resize(file_bytes_);
}

// A held arena is not moved: it grows in place, or it stays mapped and a larger copy replaces it.
void EngineMemory::grow(int tier, int64_t wanted) {
  std::shared_ptr<Arena>& arena = arenas_[tier][0];
  if (arena->bytes() >= wanted) return;
  const bool may_grow = arena.use_count() == 1 || arena->grows_in_place(wanted);
  if (may_grow && arena->bytes() > 0) return arena->grow(wanted);
  arena = device_.copy_arena(place_of(tier), *arena, wanted);
}

std::shared_ptr<void> EngineMemory::hold(const void* address) const {
  const auto* at = static_cast<const std::byte*>(address);
  for (const auto& tier : arenas_) {
    for (const std::shared_ptr<Arena>& arena : tier) {
      if (at >= arena->address() && at < arena->address() + arena->bytes()) return arena;
    }
  }
  return nullptr;
}

void EngineMemory::grow(const MemoryPlan& plan) {
  resize_transient(plan);
  for (int tier = 0; tier < 2; ++tier) grow(tier, plan.tiers[tier].persistent);
  if (plan.total(Tier::nvme) == file_bytes_) return;
  bool first = file_bytes_ == 0;
  file_bytes_ = plan.total(Tier::nvme);
  first ? open_file() : file_.resize(file_bytes_);
}

void EngineMemory::resize_transient(const MemoryPlan& plan) {
  for (int tier = 0; tier < 2; ++tier) {
    // The old arena is freed first, because both together might not fit.
    arenas_[tier][1] = make(tier, 0);
    arenas_[tier][1] = make(tier, plan.tiers[tier].transient);
  }
}

void EngineMemory::discard(const Buffer& buffer) {
  arenas_[0][0]->discard(buffer.offset, buffer.offset + buffer.bytes());
}

std::byte* EngineMemory::address(const Buffer& b) const {
  ensure(b.tier != Tier::nvme && b.offset >= 0, "%{} has no place in memory", b.name);
  return arenas_[static_cast<int>(b.tier)][static_cast<int>(b.residency)]->address() + b.offset;
}

void EngineMemory::read(const Buffer& buffer, int64_t begin, void* out, int64_t bytes) const {
  if (bytes > 0) device_.copy(out, address(buffer) + begin, bytes);
}

void EngineMemory::write(const Buffer& buffer, int64_t begin, const void* in, int64_t bytes) {
  if (bytes > 0) device_.copy(address(buffer) + begin, in, bytes);
}

void EngineMemory::fill(const Buffer& buffer, int64_t begin, int byte, int64_t bytes) {
  if (bytes > 0) device_.fill(address(buffer) + begin, byte, bytes);
}

void EngineMemory::copy(const Buffer& to, int64_t to_begin, const Buffer& from, int64_t from_begin,
                        int64_t bytes) {
  if (bytes > 0) device_.copy(address(to) + to_begin, address(from) + from_begin, bytes);
}

namespace {

// The number of elements that are converted at a time, in a block on the stack.
constexpr int64_t kConverted = 4096;

}  // namespace

void EngineMemory::read_floats(const Buffer& b, int64_t element, int64_t count, float* out) const {
  int64_t unit = size_of(b.dtype);
  if (b.tier == Tier::nvme)
    return in_file(b, element * unit, count * unit, false,
                   [&](const std::byte* bytes) { widen(b.dtype, bytes, count, out); });
  if (b.dtype == DS_DTYPE_F32) return read(b, element * unit, out, count * unit);
  alignas(64) std::byte block[kConverted * sizeof(double)];
  for (int64_t done = 0; done < count; done += kConverted) {
    int64_t n = std::min(kConverted, count - done);
    read(b, (element + done) * unit, block, n * unit);
    widen(b.dtype, block, n, out + done);
  }
}

void EngineMemory::write_floats(const Buffer& b, int64_t element, int64_t count, const float* in) {
  int64_t unit = size_of(b.dtype);
  if (b.tier == Tier::nvme)
    return in_file(b, element * unit, count * unit, true,
                   [&](std::byte* bytes) { narrow(b.dtype, in, count, bytes); });
  if (b.dtype == DS_DTYPE_F32) return write(b, element * unit, in, count * unit);
  alignas(64) std::byte block[kConverted * sizeof(double)];
  for (int64_t done = 0; done < count; done += kConverted) {
    int64_t n = std::min(kConverted, count - done);
    narrow(b.dtype, in + done, n, block);
    write(b, (element + done) * unit, block, n * unit);
  }
}

void EngineMemory::in_file(const Buffer& b, int64_t begin, int64_t bytes, bool write,
                           const std::function<void(std::byte*)>& use) const {
  settle_();
  begin += b.offset;
  int64_t low = begin / kFileBlock * kFileBlock, high = round_up(begin + bytes, kFileBlock);
  size_t size = static_cast<size_t>(high - low);
  // Direct I/O transfers whole aligned blocks. A write therefore reads the blocks first, to
  // preserve the bytes around those of the buffer.
  std::unique_ptr<void, decltype(&std::free)> block(std::aligned_alloc(kFileBlock, size),
                                                    &std::free);
  auto* data = static_cast<std::byte*>(block.get());
  file_.read(data, size, low);
  use(data + (begin - low));
  if (write) file_.write(data, size, low);
}

void EngineMemory::read_bytes(const Buffer& b, int64_t begin, int64_t bytes, uint8_t* out) const {
  if (b.tier != Tier::nvme) return read(b, begin, out, bytes);
  in_file(b, begin, bytes, false,
          [&](const std::byte* data) { std::memcpy(out, data, static_cast<size_t>(bytes)); });
}

void EngineMemory::write_bytes(const Buffer& b, int64_t begin, int64_t bytes, const uint8_t* in) {
  if (b.tier != Tier::nvme) return write(b, begin, in, bytes);
  in_file(b, begin, bytes, true,
          [&](std::byte* data) { std::memcpy(data, in, static_cast<size_t>(bytes)); });
}

Memory EngineMemory::memory() const {
  Memory memory;
  for (int tier = 0; tier < 2; ++tier) {
    for (int residency = 0; residency < 2; ++residency)
      memory.arena[tier][residency] = arenas_[tier][residency]->address();
  }
  memory.file = &file_;
  return memory;
}

int64_t EngineMemory::mapped(Tier tier) const {
  if (tier == Tier::nvme) return file_bytes_;
  const auto& t = arenas_[static_cast<int>(tier)];
  return t[0]->bytes() + t[1]->bytes();
}

}  // namespace ds
