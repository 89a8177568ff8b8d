#include "core/program/timeline.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include "core/program/cost.h"

namespace ds {
namespace {

double bytes_per_second(Queue queue, const Machine& machine) {
  switch (queue) {
    case Queue::compute:
    case Queue::host:
      return machine.device_bytes_per_second;
    case Queue::comm:
    case Queue::copy:
      return machine.link_bytes_per_second;
    case Queue::read:
    case Queue::write:
      return machine.file_bytes_per_second;
  }
  return machine.device_bytes_per_second;
}

// Returns the seconds that an instruction takes if n is at its bound: the longer of the times for
// its arithmetic and for its bytes.
double duration(const Program& program, const Instr& instr, const Machine& machine) {
  Cost cost = instruction_cost(program, instr, program.bound);
  return std::max(cost.flops / machine.flops_per_second,
                  cost.bytes / bytes_per_second(instr.queue, machine));
}

}  // namespace

Timeline predict_timeline(const Program& program, const Machine& machine) {
  Timeline out;
  PerQueue<double> free{};
  for (const Instr& instr : program.instrs) {
    double& queue = free[instr.queue];
    double begin = queue;
    for (const Wait& wait : instr.waits) {
      // The timeline has one round of one run, so waits for an earlier round or run delay nothing.
      if (!wait.run_before && !wait.round_before) begin = std::max(begin, out.end[wait.instr]);
    }
    queue = begin + duration(program, instr, machine);
    out.begin.push_back(begin);
    out.end.push_back(queue);
    out.seconds = std::max(out.seconds, queue);
  }
  return out;
}

std::vector<std::pair<double, int64_t>> bytes_over_time(const Program& program,
                                                        const Timeline& timeline, Tier tier) {
  constexpr double kNever = -1;
  IdVector<BufferId, std::pair<double, double>> lives(program.buffers.size(), {kNever, kNever});
  for (InstrId i : program.instrs.ids()) {
    for (const Operand& operand : program.instrs[i].operands) {
      auto& [first, last] = lives[operand.buffer];
      first = first == kNever ? timeline.begin[i] : std::min(first, timeline.begin[i]);
      last = std::max(last, timeline.end[i]);
    }
  }
  // A kept buffer has contents before and after the run.
  for (BufferId b : lives.ids()) {
    if (program.buffers[b].kept() && lives[b].first != kNever) lives[b] = {0, timeline.seconds};
  }
  std::map<double, int64_t> changes{{0, program.arenas[static_cast<int>(tier)].persistent}};
  for (BufferId b : lives.ids()) {
    const Buffer& buffer = program.buffers[b];
    if (buffer.residency != Residency::transient || buffer.tier != tier || lives[b].first == kNever)
      continue;
    changes[lives[b].first] += buffer.bytes();
    changes[lives[b].second] -= buffer.bytes();
  }
  std::vector<std::pair<double, int64_t>> out;
  int64_t bytes = 0;
  for (const auto& [time, change] : changes) out.emplace_back(time, bytes += change);
  return out;
}

}  // namespace ds
