#include "engine/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/base/error.h"
#include "core/base/log.h"

namespace ds {

EngineMemory::Mapping::Mapping(int64_t wanted) {
  if (wanted == 0) return;
  void* made =
      mmap(nullptr, static_cast<size_t>(wanted), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) {
    raise(DS_ERROR_OUT_OF_MEMORY, "the system refuses an arena of {} bytes: {}", wanted,
          std::strerror(errno));
  }
  data = static_cast<std::byte*>(made);
  bytes = static_cast<size_t>(wanted);
  // A wish: matrices walk over far more pages than the processor remembers translations of.
  madvise(made, bytes, MADV_HUGEPAGE);
}

void EngineMemory::Mapping::grow(int64_t wanted) {
  void* moved = mremap(data, bytes, static_cast<size_t>(wanted), MREMAP_MAYMOVE);
  if (moved == MAP_FAILED) {
    raise(DS_ERROR_OUT_OF_MEMORY, "the system refuses an arena of {} bytes in place of {}: {}", wanted, bytes,
          std::strerror(errno));
  }
  data = static_cast<std::byte*>(moved);
  bytes = static_cast<size_t>(wanted);
}

EngineMemory::Mapping::~Mapping() {
  if (data) munmap(data, bytes);
}

EngineMemory::EngineMemory(const MemoryPlan& plan, const std::string& nvme_folder) : folder_(nvme_folder) {
  for (int tier = 0; tier < 2; ++tier) {
    arenas_[tier][0] = std::make_shared<Mapping>(plan.tiers[tier].persistent);
    arenas_[tier][1] = std::make_shared<Mapping>(plan.tiers[tier].transient);
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
    log_line(LogLevel::warning,
             "nvme_path '" + folder_ + "' takes no O_DIRECT: files go through the page cache");
  }
  file_.resize(file_bytes_);
}

namespace {

// Copies into memory that is zero. Pages of zeros are only read, which takes no memory where nothing ever
// wrote to them: the copy has pages where the original has them.
void copy_sparse(std::byte* to, const std::byte* from, size_t bytes) {
  static constexpr size_t kPage = 4096;
  static const std::byte zeros[kPage] = {};
  for (size_t at = 0; at < bytes; at += kPage) {
    size_t size = std::min(kPage, bytes - at);
    if (std::memcmp(from + at, zeros, size) != 0) std::memcpy(to + at, from + at, size);
  }
}

}  // namespace

// One that is held stays where it is, and what takes its place is a copy.
void EngineMemory::grow(std::shared_ptr<Mapping>& arena, int64_t wanted) {
  if (static_cast<int64_t>(arena->bytes) >= wanted) return;
  if (arena.use_count() == 1 && arena->data) {
    arena->grow(wanted);
    return;
  }
  auto made = std::make_shared<Mapping>(wanted);
  if (arena->data) copy_sparse(made->data, arena->data, arena->bytes);
  arena = std::move(made);
}

std::shared_ptr<void> EngineMemory::hold(const void* address) const {
  const auto* at = static_cast<const std::byte*>(address);
  for (const auto& tier : arenas_) {
    for (const std::shared_ptr<Mapping>& arena : tier) {
      if (at >= arena->data && at < arena->data + arena->bytes) return arena;
    }
  }
  return nullptr;
}

void EngineMemory::grow(const MemoryPlan& plan) {
  resize_transient(plan);
  for (int tier = 0; tier < 2; ++tier) grow(arenas_[tier][0], plan.tiers[tier].persistent);
  if (plan.total(Tier::nvme) == file_bytes_) return;
  bool first = file_bytes_ == 0;
  file_bytes_ = plan.total(Tier::nvme);
  first ? open_file() : file_.resize(file_bytes_);
}

void EngineMemory::resize_transient(const MemoryPlan& plan) {
  for (int tier = 0; tier < 2; ++tier) {
    arenas_[tier][1] = std::make_shared<Mapping>();  // the old one first: both together may not fit
    arenas_[tier][1] = std::make_shared<Mapping>(plan.tiers[tier].transient);
  }
}

void EngineMemory::discard(int64_t offset, int64_t bytes) {
  constexpr int64_t kPage = 4096;
  int64_t low = (offset + kPage - 1) / kPage * kPage, high = (offset + bytes) / kPage * kPage;
  if (low < high) madvise(arenas_[0][0]->data + low, static_cast<size_t>(high - low), MADV_DONTNEED);
}

Memory EngineMemory::memory() const {
  Memory memory;
  for (int tier = 0; tier < 2; ++tier) {
    for (int residency = 0; residency < 2; ++residency)
      memory.arena[tier][residency] = arenas_[tier][residency]->data;
  }
  memory.file = &file_;
  return memory;
}

int64_t EngineMemory::mapped(Tier tier) const {
  if (tier == Tier::nvme) return file_bytes_;
  const auto& t = arenas_[static_cast<int>(tier)];
  return static_cast<int64_t>(t[0]->bytes + t[1]->bytes);
}

}  // namespace ds
