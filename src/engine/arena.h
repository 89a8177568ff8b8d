#pragma once
#include <cstddef>
#include <string>

#include "compile/pipeline.h"
#include "exec/executor.h"

namespace ds {

// The memory of one engine: anonymous mappings of exactly the planned bytes and one scratch file. Contents
// start as zero bytes.
class EngineMemory {
 public:
  // nvme_folder is used when the plan has nvme bytes; O_DIRECT when its file system takes it.
  EngineMemory(const MemoryPlan& plan, const std::string& nvme_folder);
  ~EngineMemory();
  EngineMemory(const EngineMemory&) = delete;
  EngineMemory& operator=(const EngineMemory&) = delete;

  Memory memory() const;
  File& file() { return file_; }
  int64_t mapped(Tier tier) const;  // bytes allocated

 private:
  struct Mapping {
    std::byte* data = nullptr;
    size_t bytes = 0;
  };
  static Mapping map(int64_t bytes);
  Mapping arenas_[2][2];
  File file_;
  int64_t file_bytes_ = 0;
};

}  // namespace ds
