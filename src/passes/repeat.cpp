// Makes the compile time of a long accumulation independent of its length.
//
// Problem: a step of 65,536 micro-steps would have millions of instructions, nearly all of them
// alike. But a micro-step cannot be compiled by itself: a bucket of parameters may stay gathered
// across several micro-steps, and the first gather of a micro-step is prefetched during the last
// kernels of the micro-step before.
//
// So the compiler writes out a few micro-steps: the first ones, some in the middle, and the last.
// All passes that order instructions treat these as if they were the whole step. Then this pass
// looks in the middle for a stretch of one or a few micro-steps that the program repeats directly
// afterwards: the repetition has the same instructions on the same buffers, or on buffers that
// correspond to them. The stretch is repeated for all micro-steps that were not written out.
//
// Invariant: let f map the buffers of the stretch to those of its repetition. The stretch may be
// repeated if each round finds its operands where the round before left them. For each transient
// buffer b of the stretch, one of these must hold:
// - f(b) = b: it stays over all rounds, like parameters that are gathered once.
// - b lives within the stretch: each round writes it again.
// - b was written by the micro-step before, as f(b) is written here for the next (a prefetch), and
//   its last use comes before f(b) is written. Then both become one buffer, whose contents are used
//   up before they are written again.
// Indices of micro-steps after the stretch grow by the number of micro-steps that were not written
// out.
//
// Cost: linear in the instructions that were written out. The memory of a joined buffer stays in
// use over the whole stretch, which costs the memory of a gather or two more than writing out every
// micro-step. Source: software pipelining with a kernel, a prologue and an epilogue (Lam, PLDI
// 1988); here the prologue and epilogue are whole micro-steps that exist anyway.
#include "passes/repeat.h"

#include <cstdint>
#include <iterator>

#include "core/base/ids.h"
#include "core/program/program.h"

namespace ds {
namespace {

class Folder {
 public:
  Folder(Program& program, int32_t missing) : program_(program), missing_(missing) {
    first_.assign(program.buffers.size(), InstrId());
    last_.assign(program.buffers.size(), InstrId());
    for (InstrId i : program.instrs.ids()) {
      for (const Operand& o : program.instrs[i].operands) {
        if (!first_[o.buffer].exists()) first_[o.buffer] = i;
        last_[o.buffer] = i;
      }
    }
    InstrId begin(0);
    for (const Segment& s : program.segments) {
      if (s.micro.exists() && s.micro.number() == std::ssize(begins_)) begins_.push_back(begin);
      begin = s.end;
    }
  }

  // Repeats a stretch of `micros` micro-steps that the program repeats directly afterwards. Returns
  // false if there is no such stretch.
  bool repeat(int32_t micros) {
    if (missing_ % micros != 0) return false;
    // The last micro-step is never part of a repetition. The search goes from the middle outwards,
    // since micro-steps near the ends contain additional work of the beginning and the end of a
    // step.
    int32_t most = static_cast<int32_t>(begins_.size()) - 1 - 2 * micros, middle = (most + 1) / 2;
    for (int32_t k = 0; k <= most; ++k) {
      int32_t m = k % 2 == 0 ? middle + k / 2 : middle - (k + 1) / 2;
      if (m < 1 || m > most || !repeats(MicroId(m), micros)) continue;
      join_buffers();
      move_on(micros);
      return true;
    }
    return false;
  }

 private:
  bool repeats(MicroId m, int32_t micros) {
    begin_ = begins_[m];
    end_ = begins_[m + micros];
    if (begin_ == end_ || begins_[m + 2 * micros] - end_ != end_ - begin_) return false;
    events_ = 0;
    next_.assign(program_.buffers.size(), BufferId());
    before_.assign(program_.buffers.size(), BufferId());
    for (InstrId i : IdRange(begin_, end_)) {
      if (!alike(program_.instrs[i], program_.instrs[end_ + (i - begin_)], micros)) return false;
    }
    for (BufferId b : next_.ids()) {
      if (!is_carried(b)) return false;
    }
    return true;
  }

  // Returns whether instruction b does the same as a, one round later.
  bool alike(const Instr& a, const Instr& b, int32_t micros) {
    bool same = a.def == b.def && a.queue == b.queue && a.attrs == b.attrs &&
                a.custom == b.custom && a.group == b.group && a.bucket == b.bucket &&
                comes_later(a.event, b.event) && a.runs == b.runs && a.when == b.when &&
                b.micro == a.micro + micros && a.operands.size() == b.operands.size();
    for (size_t k = 0; same && k < a.operands.size(); ++k) {
      const Operand &x = a.operands[k], &y = b.operands[k];
      same = x.type == y.type && x.access == y.access && x.stride == y.stride &&
             y.begin == x.begin + micros * x.stride && corresponds(x.buffer, y.buffer);
    }
    return same;
  }

  // Compares the calls of a delegate host. The numbers of corresponding calls must have the same
  // distance throughout a round.
  bool comes_later(EventId a, EventId b) {
    if (!a.exists() || !b.exists()) return a == b;
    if (events_ == 0) events_ = b - a;
    return b - a == events_;
  }

  // Records f(x) = y. Returns false if this contradicts an earlier record of x or y, or if the
  // buffers differ in type, size, tier or contents.
  bool corresponds(BufferId x, BufferId y) {
    const Buffer &a = program_.buffers[x], &b = program_.buffers[y];
    if (a.residency == Residency::persistent || b.residency == Residency::persistent) return x == y;
    if (next_[x].exists() || before_[y].exists()) return next_[x] == y && before_[y] == x;
    next_[x] = y;
    before_[y] = x;
    return a.dtype == b.dtype && a.numel == b.numel && a.tier == b.tier && a.holds == b.holds;
  }

  // Returns whether one of the three cases of the invariant above holds for a buffer.
  bool is_carried(BufferId b) const {
    BufferId next = next_[b];
    if (!next.exists() || next == b) return true;
    bool made_before = first_[b] < begin_, used_behind = last_[b] >= end_;
    // The buffer is used after the stretch, so it must correspond to a buffer that the round before
    // left to the stretch.
    if (used_behind) return !made_before && before_[b].exists();
    if (made_before)
      return first_[next] >= begin_ && first_[next] < end_ && last_[b] < first_[next];
    return first_[next] >= end_;
  }

  // Replaces f(b) by b if the stretch writes f(b) for the next round.
  void join_buffers() {
    IdVector<BufferId, BufferId> instead(program_.buffers.size());
    for (BufferId b : next_.ids()) {
      if (next_[b].exists() && next_[b] != b && first_[b] < begin_) instead[next_[b]] = b;
    }
    for (Instr& in : program_.instrs) {
      for (Operand& o : in.operands) {
        if (instead[o.buffer].exists()) o.buffer = instead[o.buffer];
      }
    }
  }

  // Sets Program::repeat. Increases the indices of the micro-steps after the stretch by the number
  // of missing micro-steps, and moves their operands accordingly.
  void move_on(int32_t micros) {
    program_.repeat = {begin_, end_, 1 + missing_ / micros, micros};
    for (InstrId i : program_.instrs.ids()) {
      Instr& in = program_.instrs[i];
      bool behind =
          // Instructions outside micro-steps have index 0.
          i >= end_ && in.micro > MicroId(0);
      if (behind) in.micro = in.micro + missing_;
      for (Operand& o : in.operands) {
        if (behind) o.begin += missing_ * o.stride;
        o.stride = program_.repeat.has(i) ? micros * o.stride : 0;
      }
    }
    for (Segment& s : program_.segments) {
      if (s.end > end_ && s.micro.exists()) s.micro = s.micro + missing_;
    }
  }

  Program& program_;
  int32_t missing_;
  // The first and last instruction that use a buffer.
  IdVector<BufferId, InstrId> first_, last_;
  // The first instruction of each micro-step.
  IdVector<MicroId, InstrId> begins_;
  // The first instruction of the stretch, and the first instruction after it.
  InstrId begin_, end_;
  // The number of host calls in a round.
  int32_t events_ = 0;
  // f and its inverse.
  IdVector<BufferId, BufferId> next_, before_;
};

}  // namespace

bool repeat_micros(Program& program, int32_t missing, int32_t micros) {
  if (missing > 0) return Folder(program, missing).repeat(micros);
  for (Instr& in : program.instrs) {
    for (Operand& o : in.operands) o.stride = 0;
  }
  return true;
}

}  // namespace ds
