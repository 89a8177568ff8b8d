// The certificate of a plan: its programs, together with the figures that libds claims about them
// (lifetimes of buffers, bytes moved, order of collectives, memory). A checker that shares no code
// with libds derives the figures from the programs and compares them. Therefore programs are
// printed as they are, even if they are broken. docs/concepts/certificate.md describes the lines.
#include "compile/certificate.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <map>

#include "compile/memory_plan.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/round.h"
#include "core/base/tier.h"
#include "core/program/instruction.h"
#include "core/program/program.h"

namespace ds {
namespace {

int64_t bytes_of(const Program& program, const Operand& o) { return o.bytes(program.bound); }

// Returns the kind under which transfers are counted at run time: "all_gather", or "all_gather 2x4"
// if only the ranks of a group take part.
std::string kind_of(const Program& program, const Instr& in) {
  if (in.queue != Queue::comm || in.group.size == program.mesh.ranks()) return in.def->name;
  return in.def->name + " " + in.group.name();
}

bool moves(const Instr& in) {
  return in.def->kind == Kind::collective || in.def->kind == Kind::copy ||
         in.def->kind == Kind::file;
}

// Returns the bytes that a transfer moves or, for a collective, that the rank receives from other
// ranks.
int64_t moved_bytes(const Program& program, const Instr& in) {
  int64_t from = bytes_of(program, in.operands.at(0)), to = bytes_of(program, in.operands.at(1));
  // A broken plan may have an empty group, and the certificate must be able to say so.
  int64_t ranks = std::max(in.group.size, 1);
  if (in.queue == Queue::copy) return from;
  if (in.queue != Queue::comm) return round_up(from, kFileBlock);
  if (in.def->op == Op::all_gather) return from * (ranks - 1);
  if (in.def->op == Op::all_reduce) return (from + to) * (ranks - 1) / ranks;
  return from / ranks * (ranks - 1);
}

// Returns the first and the last instruction that use each transient buffer.
std::string lives(const Program& program) {
  std::vector<std::pair<size_t, size_t>> uses(program.buffers.size(), {SIZE_MAX, 0});
  for (size_t i = 0; i < program.instrs.size(); ++i) {
    for (const Operand& o : program.instrs[i].operands) {
      auto& [first, last] = uses[o.buffer.index()];
      first = std::min(first, i);
      last = i;
    }
  }
  std::string out;
  for (size_t b = 0; b < uses.size(); ++b) {
    bool used = uses[b].first != SIZE_MAX && program.buffers[b].residency == Residency::transient;
    if (used)
      out += fmt::format("life {} {} {}\n", program.buffers[b].name, uses[b].first, uses[b].second);
  }
  return out;
}

// Returns the calls and bytes of all transfers by kind, over all rounds, followed by the
// collectives in the order of the program.
std::string traffic(const Program& program) {
  struct Moved {
    int64_t calls = 0, bytes = 0;
  };
  std::map<std::string, Moved> all;
  std::string order;
  for (InstrId i : program.instrs.ids()) {
    const Instr& in = program.instrs[i];
    if (!moves(in)) continue;
    std::string kind = kind_of(program, in);
    Moved& moved = all[kind];
    moved.calls += program.rounds(i);
    moved.bytes += program.rounds(i) * moved_bytes(program, in);
    if (in.queue == Queue::comm)
      order += fmt::format("order {} {} bytes={}\n", in.comm_order, kind,
                           bytes_of(program, in.operands[1]));
  }
  std::string out;
  for (const auto& [kind, moved] : all)
    out += fmt::format("moved {} calls={} bytes={}\n", kind, moved.calls, moved.bytes);
  return out + order;
}

constexpr const char* kTiers[3] = {"dev", "host", "nvme"};
constexpr const char* kAccesses[3] = {"reads", "writes", "updates"};

// Returns the text of the program itself: arenas, buffers with their offsets, and instructions with
// operands and waits.
std::string body(const Program& program) {
  std::string out = fmt::format("program {} {}{}\n", program.name, program.rank,
                                program.separate ? " separate" : "");
  for (int t = 0; t < 3; ++t)
    out += fmt::format("arena {} persistent={} transient={}\n", kTiers[t],
                       program.arenas[t].persistent, program.arenas[t].transient);
  if (const Repeat& r = program.repeat; r.rounds > 1)
    out += fmt::format("repeat {} {} {}\n", r.begin, r.end, r.rounds);
  for (const Buffer& b : program.buffers)
    out += fmt::format("buffer {} {} {} {} {} {}\n", b.name, kTiers[static_cast<int>(b.tier)],
                       b.residency == Residency::persistent ? "persistent" : "transient",
                       holds_name(b.holds), b.bytes(), b.offset);
  for (size_t i = 0; i < program.instrs.size(); ++i) {
    const Instr& in = program.instrs[i];
    out += fmt::format("instr {} {} {}", i, queue_name(in.queue), in.def->name);
    if (in.queue == Queue::comm)
      out += fmt::format(" {} {} {}", in.group.size, in.group.stride, in.comm_order);
    out += "\n";
    for (const Operand& o : in.operands)
      out += fmt::format("{} {} {} {} {}{}{}\n", kAccesses[static_cast<int>(o.access)],
                         program.buffers[o.buffer].name, o.begin, bytes_of(program, o),
                         dtype_name(o.type.dtype),
                         o.stride != 0 ? fmt::format(" +{}", o.stride) : "", o.last ? " last" : "");
    for (const Wait& wait : in.waits)
      out +=
          fmt::format("{} {}\n", wait.round_before ? "after" : "wait",
                      wait.run_before ? wait.instr - program.instrs.past() : wait.instr.number());
  }
  return out;
}

// Returns the bytes of persistent buffers by tier and kind. The programs of a rank share these
// buffers, so each name counts once.
std::string held(int rank, const std::vector<const Program*>& programs) {
  std::map<std::string, const Buffer*> buffers;
  for (const Program* program : programs) {
    for (const Buffer& b : program->buffers) {
      if (b.residency == Residency::persistent) buffers.try_emplace(b.name, &b);
    }
  }
  std::map<std::pair<Tier, std::string>, int64_t> sums;
  for (const auto& [name, b] : buffers) sums[{b->tier, holds_name(b->holds)}] += b->bytes();
  std::string out;
  for (const auto& [key, bytes] : sums)
    out += fmt::format("held rank={} {} {} bytes={}\n", rank, kTiers[static_cast<int>(key.first)],
                       key.second, bytes);
  return out;
}

}  // namespace

std::string certificate(std::span<const std::vector<const Program*>> ranks) {
  std::string out = fmt::format("certificate {}\n", ranks.size());
  size_t programs = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    MemoryPlan memory;
    for (const Program* program : ranks[rank]) {
      out += body(*program) + lives(*program) + traffic(*program);
      memory.add(*program);
    }
    out += fmt::format("memory rank={} dev={} host={} nvme={}\n", rank, memory.total(Tier::device),
                       memory.total(Tier::host), memory.total(Tier::nvme));
    out += held(static_cast<int>(rank), ranks[rank]);
    programs += ranks[rank].size();
  }
  return out + fmt::format("end {}\n", programs);
}

std::vector<const Program*> programs_of(const Plan& plan) {
  std::vector<const Program*> out;
  for (const auto& [key, program] : plan.programs) out.push_back(&program);
  return out;
}

std::string certificate(std::span<const Plan* const> ranks) {
  std::vector<std::vector<const Program*>> programs;
  for (const Plan* plan : ranks) programs.push_back(programs_of(*plan));
  return certificate(programs);
}

}  // namespace ds
