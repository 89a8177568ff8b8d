#include "engine/arena.h"

#include "core/base/error.h"
#include "core/base/log.h"
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

EngineMemory::EngineMemory(Device& device, const MemoryPlan& plan, const std::string& nvme_folder)
    : device_(device), folder_(nvme_folder) {
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
    log_line(LogLevel::warning,
             "nvme_path '" + folder_ + "' takes no O_DIRECT: files go through the page cache");
  }
  file_.resize(file_bytes_);
}

// One that is held stays where it is, and what takes its place is a copy.
void EngineMemory::grow(int tier, int64_t wanted) {
  std::shared_ptr<Arena>& arena = arenas_[tier][0];
  if (arena->bytes() >= wanted) return;
  if (arena.use_count() == 1 && arena->bytes() > 0) return arena->grow(wanted);
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
    arenas_[tier][1] = make(tier, 0);  // the old one first: both together may not fit
    arenas_[tier][1] = make(tier, plan.tiers[tier].transient);
  }
}

void EngineMemory::discard(int64_t offset, int64_t bytes) {
  arenas_[0][0]->discard(offset, offset + bytes);
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
