#pragma once
#include <cstddef>
#include <string>
#include <utility>

#include "compile/pipeline.h"
#include "exec/executor.h"

namespace ds {

// The memory of one engine: anonymous mappings of exactly the planned bytes and one scratch file. Contents
// start as zero bytes.
class EngineMemory {
 public:
  // nvme_folder is used when the plan has nvme bytes; O_DIRECT when its file system takes it.
  EngineMemory(const MemoryPlan& plan, const std::string& nvme_folder);
  EngineMemory(const EngineMemory&) = delete;
  EngineMemory& operator=(const EngineMemory&) = delete;

  // Replaces the transient arenas by ones of the new sizes. Pointers into the old ones end.
  void resize_transient(const MemoryPlan& plan);
  // As the plan says, which has the same persistent places and more behind them: arenas keep their contents
  // and get zero bytes behind, the file's new bytes are undefined. Pointers into the old arenas end.
  void grow(const MemoryPlan& plan);
  // Returns the pages of a range of the persistent device arena to the system; it reads as zero again.
  void discard(int64_t offset, int64_t bytes);

  Memory memory() const;
  File& file() { return file_; }
  int64_t mapped(Tier tier) const;  // bytes allocated

 private:
  // Anonymous memory of its own; of 0 bytes, none.
  class Mapping {
   public:
    explicit Mapping(int64_t bytes = 0);
    ~Mapping();
    void grow(int64_t wanted);  // keeps the contents; data may move
    Mapping(Mapping&& other) noexcept { swap(other); }
    Mapping& operator=(Mapping&& other) noexcept {
      swap(other);
      return *this;
    }
    std::byte* data = nullptr;
    size_t bytes = 0;

   private:
    void swap(Mapping& other) noexcept {
      std::swap(data, other.data);
      std::swap(bytes, other.bytes);
    }
  };
  void open_file();

  std::string folder_;
  Mapping arenas_[2][2];
  File file_;
  int64_t file_bytes_ = 0;
};

}  // namespace ds
