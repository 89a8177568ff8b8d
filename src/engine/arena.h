#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "compile/pipeline.h"
#include "core/device/device.h"
#include "exec/executor.h"
#include "io/file.h"

namespace ds {

// The memory of one engine: arenas of its device of exactly the planned bytes and one scratch file.
class EngineMemory {
 public:
  // nvme_folder is used when the plan has nvme bytes; O_DIRECT when its file system takes it. The
  // device is borrowed.
  EngineMemory(Device& device, const MemoryPlan& plan, const std::string& nvme_folder);
  EngineMemory(const EngineMemory&) = delete;
  EngineMemory& operator=(const EngineMemory&) = delete;

  // Replaces the transient arenas by ones of the new sizes. Pointers into the old ones end, unless
  // held.
  void resize_transient(const MemoryPlan& plan);
  // As the plan says, which has the same persistent places and more behind them: arenas keep their
  // contents and get zero bytes behind, the file's new bytes are undefined. Pointers into the old
  // arenas end, unless held; a held arena is copied, which takes pages only for what is not zero.
  void grow(const MemoryPlan& plan);
  // Returns the pages of a range of the persistent device arena to the system; it reads as zero
  // again.
  void discard(int64_t offset, int64_t bytes);

  // Keeps the arena at this address mapped for as long as the result lives, beyond this object too:
  // a tensor that a program still has when its lease or its engine has ended shows old values, and
  // nothing faults.
  std::shared_ptr<void> hold(const void* address) const;

  Memory memory() const;
  File& file() { return file_; }
  int64_t mapped(Tier tier) const;  // bytes allocated

 private:
  std::shared_ptr<Arena> make(int tier, int64_t bytes) const;
  void grow(int tier, int64_t wanted);  // the persistent arena
  void open_file();

  Device& device_;
  std::string folder_;
  std::shared_ptr<Arena> arenas_[2][2];  // by tier and residency; never null
  File file_;
  int64_t file_bytes_ = 0;
};

}  // namespace ds
