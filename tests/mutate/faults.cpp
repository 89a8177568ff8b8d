#include "mutate/faults.h"

#include <fmt/format.h>

#include <functional>

#include "core/base/element_run.h"
#include "core/program/builder.h"
#include "core/program/hazards.h"

namespace ds::test {
namespace {

// Returns the n-th instruction (from 0) with this operation name, or null.
Instr* nth(Program& p, const std::string& op, int n = 0) {
  for (Instr& in : p.instrs) {
    if (in.def->name == op && n-- == 0) return &in;
  }
  return nullptr;
}

bool set_attr(Program& p, const std::string& op, const char* name, double factor) {
  bool any = false;
  for (Instr& in : p.instrs) {
    if (in.def->name != op || !in.attrs.has(name)) continue;
    in.attrs.set(name, in.attrs.real(name) * factor);
    any = true;
  }
  return any;
}

// Applies `change` to the element runs of update instructions until it changes one; returns whether
// it did.
bool change_run(Program& p, const std::function<bool(ElementRun&)>& change) {
  for (Instr& in : p.instrs) {
    if (in.def->kind != Kind::update) continue;
    for (ElementRun& run : in.runs) {
      if (change(run)) return true;
    }
  }
  return false;
}

// Removes an instruction and keeps the program valid otherwise: instructions that waited for it now
// wait for the previous instruction on its queue and for everything that it waited for in the same
// run.
void erase(Program& p, InstrId gone) {
  const Instr old = p.instrs[gone];
  std::vector<InstrId> instead;
  for (InstrId i = gone - 1; i.exists() && instead.empty(); --i) {
    if (p.instrs[i].queue == old.queue) instead.push_back(i);
  }
  for (const Wait& wait : old.waits) {
    if (!wait.run_before) instead.push_back(wait.instr);
  }
  for (Instr& in : p.instrs) {
    std::vector<Wait> waits;
    for (const Wait& wait : in.waits) {
      if (wait.instr != gone) {
        waits.push_back({wait.instr > gone ? wait.instr - 1 : wait.instr, wait.run_before});
      } else {
        for (InstrId i : instead) waits.push_back({i, wait.run_before});
      }
    }
    in.waits = std::move(waits);
  }
  p.instrs.erase(p.instrs.begin() + gone.number());
  for (Segment& s : p.segments) {
    if (s.end > gone) --s.end;
  }
  mark_last_uses(p);
}

bool remove(Program& p, const std::string& op, int n = 0) {
  Instr* in = nth(p, op, n);
  if (!in) return false;
  erase(p, InstrId(in - p.instrs.data()));
  return true;
}

// Swaps two operands of the same type between two instructions of the same operation. Leaves out
// gradients, because a copy in files of an accumulator that stays in host memory is never read.
bool swap_operand(Program& p, const std::string& op, size_t operand) {
  std::vector<Operand*> seen;
  for (Instr& in : p.instrs) {
    if (in.def->name != op || in.operands.size() <= operand) continue;
    Operand& o = in.operands[operand];
    if (p.buffers[o.buffer].name.find(".grad") != std::string::npos) continue;
    for (Operand* other : seen) {
      if (!(other->type == o.type) || other->buffer == o.buffer) continue;
      std::swap(other->buffer, o.buffer);
      std::swap(other->begin, o.begin);
      return true;
    }
    seen.push_back(&o);
  }
  return false;
}

// Changes a backward product so that it writes its gradient one granule further.
bool shift_gradient(Program& p) {
  for (Instr& in : p.instrs) {
    if (in.def->name != "linear_dw") continue;
    Operand& out = in.operands.back();
    const Buffer& b = p.buffers[out.buffer];
    int64_t step = 256 * size_of(b.dtype);
    if (b.name.find(".g") == std::string::npos || out.begin + out.bytes(p.bound) + step > b.bytes())
      continue;
    out.begin += step;
    return true;
  }
  return false;
}

bool wrong_micro_step(Program& p) {
  for (Instr& in : p.instrs) {
    if (in.def->name == "dropout" && in.micro == MicroId(1)) {
      in.micro = MicroId(0);
      return true;
    }
  }
  return false;
}

bool flip_beta(Program& p) {
  Instr* in = nth(p, "accumulate");
  if (!in) return false;
  in->attrs.set("beta", in->attrs.integer("beta") == 0 ? int64_t{1} : int64_t{0});
  return true;
}

}  // namespace

const std::vector<Fault>& faults() {
  static const std::vector<Fault> all = {
      {"a run is of another group",
       [](Program& p) {
         return change_run(p, [](ElementRun& r) { return r.group == 1 && (r.group = 2) != 0; });
       }},
      {"a run is of group 0",
       [](Program& p) {
         return change_run(p, [](ElementRun& r) { return r.group == 1 && (r.group = 0) == 0; });
       }},
      {"a run missed an update",
       [](Program& p) { return change_run(p, [](ElementRun& r) { return r.missed-- == 0; }); }},
      {"a run is shorter",
       [](Program& p) {
         return change_run(
             p, [](ElementRun& r) { return r.end - r.begin > 300 && (r.end -= 256) > 0; });
       }},
      {"clip limit x 1.01", [](Program& p) { return set_attr(p, "clip", "max_norm", 1.01); }},
      {"dropout share x 1.1", [](Program& p) { return set_attr(p, "dropout", "p", 1.1); }},
      {"an update is left out", [](Program& p) { return remove(p, "adamw", 1); }},
      {"an accumulation is left out", [](Program& p) { return remove(p, "accumulate"); }},
      {"an accumulation overwrites or adds the wrong way", flip_beta},
      {"padding is not zeroed", [](Program& p) { return remove(p, "zero"); }},
      {"a save is left out", [](Program& p) { return remove(p, "save", 2); }},
      {"two loads change places", [](Program& p) { return swap_operand(p, "load", 0); }},
      {"two saves change places", [](Program& p) { return swap_operand(p, "save", 1); }},
      {"two fetches change places", [](Program& p) { return swap_operand(p, "fetch", 0); }},
      {"a gradient is one granule off", shift_gradient},
      {"dropout draws for another micro-step", wrong_micro_step},
      {"layer norm eps x 100", [](Program& p) { return set_attr(p, "layer_norm", "eps", 100); }},
  };
  return all;
}

const std::vector<Fault>& group_faults() {
  static const std::vector<Fault> all = [] {
    std::vector<Fault> faults;
    for (const char* op : {"all_gather", "reduce_scatter", "all_reduce"}) {
      for (int n = 0; n < 3; ++n) {
        faults.push_back(
            {fmt::format("{} {} names another group on one rank", op, n), [op, n](Program& p) {
               Instr* in = nth(p, op, n);
               if (p.rank != 1 || !in) return false;
               RankGroup all = p.mesh.data_group();
               in->group = in->group == all ? RankGroup{all.size / 2, 1} : all;
               return true;
             }});
        faults.push_back({fmt::format("{} {} names no group", op, n), [op, n](Program& p) {
                            Instr* in = nth(p, op, n);
                            if (in) in->group = {0, 0};
                            return in != nullptr;
                          }});
      }
    }
    return faults;
  }();
  return all;
}

const std::vector<Fault>& code_faults() {
  static const std::vector<Fault> all = {
      {"an error stays x 1.01",
       [](Program& p) { return set_attr(p, "quantize", "err_beta", 1.01); }},
      {"codes are not made", [](Program& p) { return remove(p, "quantize", 1); }},
      {"codes are not summed", [](Program& p) { return remove(p, "dequantize_sum"); }},
      {"weights stay as they were", [](Program& p) { return remove(p, "dequantize", 1); }},
      {"codes of two buckets change places",
       [](Program& p) { return swap_operand(p, "quantize", 1); }},
      {"two exchanges of codes change places",
       [](Program& p) { return swap_operand(p, "all_to_all", 0); }},
  };
  return all;
}

const std::vector<Fault>& row_faults() {
  static const std::vector<Fault> all = {
      {"rows are not packed", [](Program& p) { return remove(p, "pack_rows", 1); }},
      {"rows are not summed", [](Program& p) { return remove(p, "sum_rows"); }},
      {"sums are of the elements before",
       [](Program& p) {
         Instr* in = nth(p, "sum_rows");
         if (!in || p.rank == 0) return false;
         in->attrs.set("first", in->attrs.integer("first") - 1);
         return true;
       }},
      {"ids are of another micro-step",
       [](Program& p) {
         Instr* in = nth(p, "pack_rows", 1);
         if (in) in->operands[1].begin = 0;
         return in != nullptr;
       }},
  };
  return all;
}

std::vector<std::pair<size_t, size_t>> waits_of(const Program& program) {
  std::vector<std::pair<size_t, size_t>> out;
  for (size_t i = 0; i < program.instrs.size(); ++i) {
    for (size_t w = 0; w < program.instrs[i].waits.size(); ++w) out.emplace_back(i, w);
  }
  return out;
}

std::string hazard_of(const Program& program, InstrId later, const Wait& wait) {
  if (wait.run_before) return "of the run before";
  bool reads = false, writes = false, same = false;
  for (const Operand& a : program.instrs[wait.instr].operands) {
    for (const Operand& b : program.instrs[later].operands) {
      PhysicalRange x = physical_range(program, program.instrs[wait.instr], a);
      PhysicalRange y = physical_range(program, program.instrs[later], b);
      if (x.arena != y.arena || x.begin >= y.end || y.begin >= x.end) continue;
      if (a.access == Access::read && b.access == Access::read) continue;
      same = same || a.buffer == b.buffer;
      reads = reads || (a.access != Access::read && b.access != Access::write);
      writes = writes || b.access != Access::read;
    }
  }
  if (!reads && !writes) return "of what another wait covers";
  std::string kind = reads && writes ? "update after write"
                     : reads         ? "read after write"
                                     : "write after use";
  return kind + (same ? "" : ", memory used again");
}

void drop_wait(Program& program, std::pair<size_t, size_t> wait) {
  auto& waits = program.instrs[wait.first].waits;
  waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(wait.second));
}

}  // namespace ds::test
