// A transient buffer has no copy after its last use, so a read before the next write is reported:
// no instruction has written the buffer.

#include "diagnostics/audit_shadow.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/base/tier.h"
#include "core/program/program.h"
#include "diagnostics/audit_kernel.h"

namespace ds {

namespace {

// Returns the present content of a buffer.
std::vector<std::byte> bytes_now(const StepSight& sight, BufferId id) {
  const Buffer& buffer = sight.program.buffers[id];
  std::vector<std::byte> bytes(static_cast<size_t>(buffer.bytes()));
  sight.runtime.memory().read(buffer, 0, bytes.data(), buffer.bytes());
  return bytes;
}

}  // namespace

AuditShadow::AuditShadow(const StepSight& sight)
    : program_(sight.program), copies_(sight.program.buffers.size()) {
  for (BufferId b : copies_.ids()) {
    const Buffer& buffer = program_.buffers[b];
    bool here = buffer.residency == Residency::persistent && buffer.tier != Tier::nvme &&
                buffer.offset >= 0;
    if (!here || buffer.holds == Holds::scalars) continue;
    copies_[b].bytes = bytes_now(sight, b);
  }
}

std::string AuditShadow::difference(const Operand& operand, const TensorView& view) const {
  BufferId id = operand.buffer;
  const Copy& copy = copies_[id];
  const std::string& name = program_.buffers[id].name;
  if (copy.bytes.empty()) return fmt::format("{} is read, but no instruction has written it", name);
  const std::byte *want = copy.bytes.data() + operand.begin, *got = view.as<std::byte>();
  int64_t size = bytes_of(view);
  if (std::memcmp(got, want, static_cast<size_t>(size)) == 0) return "";
  int64_t at = (std::mismatch(got, got + size, want).first - got) / size_of(view.dtype);
  std::string writer =
      !copy.writer.exists() ? "before the step" : fmt::format("by instruction {}", copy.writer);
  return fmt::format("{}[{}] is no longer what was written {}", name, at, writer);
}

// At the first write, the other bytes of the buffer are copied from memory, because their expected
// content is not known.
void AuditShadow::written(const StepSight& sight, const Operand& operand, const TensorView& view,
                          InstrId instr) {
  BufferId id = operand.buffer;
  Copy& copy = copies_[id];
  if (copy.bytes.empty()) copy.bytes = bytes_now(sight, id);
  copy.writer = instr;
  std::memcpy(copy.bytes.data() + operand.begin, view.data, static_cast<size_t>(bytes_of(view)));
}

void AuditShadow::ended(const Operand& operand) {
  bool transient = program_.buffers[operand.buffer].residency == Residency::transient;
  if (operand.last && transient) copies_[operand.buffer] = {};
}

}  // namespace ds
