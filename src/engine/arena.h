#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "compile/memory_plan.h"
#include "core/base/tier.h"
#include "core/device/device.h"
#include "core/program/program.h"
#include "exec/executor.h"
#include "io/file.h"

namespace ds {

// The memory of one engine: arenas of its device with exactly the planned bytes, one scratch file,
// and access to the buffers inside them.
class EngineMemory {
 public:
  // `nvme_folder` gets the scratch file if the plan has nvme bytes, with O_DIRECT if its file
  // system supports it. The device is borrowed. `settle` waits for transfers to and from the file.
  EngineMemory(Device& device, const MemoryPlan& plan, const std::string& nvme_folder,
               std::function<void()> settle);
  EngineMemory(const EngineMemory&) = delete;
  EngineMemory& operator=(const EngineMemory&) = delete;

  // Replaces the transient arenas by arenas of the new sizes. Pointers into the old arenas become
  // invalid unless the arenas are held.
  void resize_transient(const MemoryPlan& plan);
  // Allocates the memory of a plan that has the same persistent places as the present plan, and
  // more after them. The arenas keep their contents and are extended by zero bytes; the new bytes
  // of the file are undefined. Pointers into the old arenas become invalid unless the arenas are
  // held: a held arena stays and its contents are copied, which uses pages only for bytes that are
  // not zero. The transient arenas are replaced, as by resize_transient().
  void grow(const MemoryPlan& plan);
  // Returns the pages of a persistent device buffer to the system; the buffer then reads as zero.
  void discard(const Buffer& buffer);

  // Keeps the arena at this address mapped for as long as the result lives, even after this object
  // is destroyed. A tensor that a host still has after its lease or its engine has ended then shows
  // old values, and accessing it does not fault.
  std::shared_ptr<void> hold(const void* address) const;

  // Read, write and fill bytes of a buffer in device or host memory, from its byte `begin` on.
  // Nothing in flight may touch these bytes.
  void read(const Buffer& buffer, int64_t begin, void* out, int64_t bytes) const;
  void write(const Buffer& buffer, int64_t begin, const void* in, int64_t bytes);
  void fill(const Buffer& buffer, int64_t begin, int byte, int64_t bytes);
  // Copies bytes between two buffers in memory.
  void copy(const Buffer& to, int64_t to_begin, const Buffer& from, int64_t from_begin,
            int64_t bytes);
  // Read and write elements as f32, in any tier. Files are read and written by whole blocks.
  void read_floats(const Buffer& buffer, int64_t element, int64_t count, float* out) const;
  void write_floats(const Buffer& buffer, int64_t element, int64_t count, const float* in);
  // Read and write bytes of a buffer in any tier.
  void read_bytes(const Buffer& buffer, int64_t begin, int64_t bytes, uint8_t* out) const;
  void write_bytes(const Buffer& buffer, int64_t begin, int64_t bytes, const uint8_t* in);
  // Returns the address of a buffer in memory. It is an address of the device: host code may pass
  // it on, but must read through read(), unless the device shares its memory with the host.
  std::byte* address(const Buffer& buffer) const;

  Memory memory() const;
  // Returns the scratch file of the nvme tier.
  const File& file() const { return file_; }
  // Returns the bytes allocated in a tier.
  int64_t mapped(Tier tier) const;

 private:
  // Calls use(data) with bytes [begin, begin + bytes) of a buffer in the file. If `write` is set,
  // writes the data back afterwards.
  void in_file(const Buffer& buffer, int64_t begin, int64_t bytes, bool write,
               const std::function<void(std::byte*)>& use) const;
  std::shared_ptr<Arena> make(int tier, int64_t bytes) const;
  // Extends the persistent arena of a tier to `wanted` bytes.
  void grow(int tier, int64_t wanted);
  void open_file();

  Device& device_;
  std::string folder_;
  // The arenas by tier and residency; never null.
  std::shared_ptr<Arena> arenas_[2][2];
  std::function<void()> settle_;
  // Mutable, because the contents of the file are not a part of the object's state.
  mutable File file_;
  int64_t file_bytes_ = 0;
};

}  // namespace ds
