#include "diagnostics/audit_files.h"

#include <bit>
#include <cstddef>
#include <iterator>

#include "core/base/hash.h"
#include "core/base/round.h"
#include "core/base/tier.h"
#include "core/program/instruction.h"
#include "core/program/program.h"
#include "kernels/kernel.h"

namespace ds {
namespace {

const Operand& extent_of(const Instr& in) { return in.operands[in.queue == Queue::write ? 1 : 0]; }

// Returns the offset of an extent in the file, which contains the persistent arena, followed by the
// transient one.
int64_t place_in_file(const StepSight& sight, const Operand& extent) {
  const Buffer& buffer = sight.program.buffers[extent.buffer];
  int64_t arena = buffer.residency == Residency::transient
                      ? sight.program.arenas[static_cast<int>(Tier::nvme)].persistent
                      : 0;
  return arena + buffer.offset + extent.begin;
}

// A copy of bytes of the file. Direct transfers need whole blocks, and an address that is a
// multiple of the block size.
class FileBytes {
 public:
  FileBytes(const StepSight& sight, int64_t place, int64_t bytes)
      : room_(blocks_of(bytes), DS_DTYPE_U8) {
    auto address = std::bit_cast<uintptr_t>(room_.view().data);
    data_ = room_.view().as<std::byte>() + (kFileBlock - address % kFileBlock) % kFileBlock;
    auto whole = static_cast<size_t>(round_up(bytes, kFileBlock));
    sight.runtime.memory().file().read(data_, whole, place);
  }
  std::byte* data() { return data_; }

 private:
  static TensorView blocks_of(int64_t bytes) {
    TensorView room;
    room.dims[0] = bytes + 2 * kFileBlock;
    return room;
  }
  AuditTensor room_;
  std::byte* data_;
};

uint64_t hash_of(const std::byte* data, int64_t bytes) {
  return hash64({reinterpret_cast<const char*>(data), static_cast<size_t>(bytes)});
}

}  // namespace

// Only persistent extents have content before the step; a transient extent must be written before
// it is read.
void AuditFiles::begin(const StepSight& sight) {
  held_.clear();
  for (const Instr& in : sight.program.instrs) {
    if (in.queue != Queue::read) continue;
    const Operand& extent = extent_of(in);
    const Buffer& buffer = sight.program.buffers[extent.buffer];
    int64_t place = place_in_file(sight, extent), bytes = extent.bytes(sight.tokens);
    if (buffer.residency == Residency::transient || held_.count(place) != 0) continue;
    hold(place, {bytes, hash_of(FileBytes(sight, place, bytes).data(), bytes)});
  }
}

// After a save, the file must have the bytes of the memory. After a load, the file must still have
// the recorded bytes, and the memory must have the bytes of the file.
Verdict AuditFiles::judge(const StepSight& sight, const Instr& instr, const TensorView& memory) {
  int64_t place = place_in_file(sight, extent_of(instr)), bytes = bytes_of(memory);
  FileBytes file(sight, place, bytes);
  TensorView stored = memory;
  stored.data = file.data();
  uint64_t hash = hash_of(file.data(), bytes);
  if (instr.queue == Queue::write) {
    hold(place, {bytes, hash});
    return judge_bits(stored, memory, "file");
  }
  auto found = held_.find(place);
  if (found != held_.end() && found->second.bytes == bytes && found->second.hash != hash)
    return Verdict::wrong("the file no longer holds what was saved");
  return judge_bits(memory, stored, "output 0");
}

// Removes all entries that overlap the new one, because their content has been overwritten.
void AuditFiles::hold(int64_t place, Held held) {
  auto at = held_.lower_bound(place);
  if (at != held_.begin() && std::prev(at)->first + std::prev(at)->second.bytes > place) --at;
  while (at != held_.end() && at->first < place + held.bytes) at = held_.erase(at);
  held_[place] = held;
}

}  // namespace ds
