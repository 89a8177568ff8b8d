#include "tools/audit_shadow.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/base/tier.h"
#include "core/program/program.h"
#include "tools/audit_kernel.h"

namespace ds {

std::byte* place_of(const StepSight& sight, BufferId id) {
  const Buffer& b = sight.program.buffers[id];
  return sight.memory.arena[static_cast<int>(b.tier)][static_cast<int>(b.residency)] + b.offset;
}

AuditShadow::AuditShadow(const StepSight& sight)
    : program_(sight.program), copies_(sight.program.buffers.size()) {
  for (BufferId b : copies_.ids()) {
    const Buffer& buffer = program_.buffers[b];
    bool here = buffer.residency == Residency::persistent && buffer.tier != Tier::nvme && buffer.offset >= 0;
    if (!here || buffer.holds == Holds::scalars) continue;
    const std::byte* data = place_of(sight, b);
    copies_[b].bytes.assign(data, data + buffer.bytes());
  }
}

std::string AuditShadow::difference(const Operand& operand, const TensorView& view) const {
  BufferId id = operand.buffer;
  const Copy& copy = copies_[id];
  const std::string& name = program_.buffers[id].name;
  if (copy.bytes.empty()) return fmt::format("{} is read, which no instruction has written", name);
  const std::byte *want = copy.bytes.data() + operand.begin, *got = view.as<std::byte>();
  int64_t size = bytes_of(view);
  if (std::memcmp(got, want, static_cast<size_t>(size)) == 0) return "";
  int64_t at = (std::mismatch(got, got + size, want).first - got) / size_of(view.dtype);
  std::string writer =
      !copy.writer.exists() ? "before the step" : fmt::format("by instruction {}", copy.writer);
  return fmt::format("{}[{}] is no longer what was written {}", name, at, writer);
}

void AuditShadow::written(const StepSight& sight, const Operand& operand, const TensorView& view,
                          InstrId instr) {
  BufferId id = operand.buffer;
  Copy& copy = copies_[id];
  if (copy.bytes.empty()) {
    const std::byte* data = place_of(sight, operand.buffer);
    copy.bytes.assign(data, data + program_.buffers[id].bytes());
  }
  copy.writer = instr;
  std::memcpy(copy.bytes.data() + operand.begin, view.data, static_cast<size_t>(bytes_of(view)));
}

void AuditShadow::ended(const Operand& operand) {
  bool transient = program_.buffers[operand.buffer].residency == Residency::transient;
  if (operand.last && transient) copies_[operand.buffer] = {};
}

}  // namespace ds
