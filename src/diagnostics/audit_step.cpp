// Problem. A step computes wrong numbers without an error. The cause may be a kernel, a collective,
// a transfer, a wrong address in the plan, or memory that is overwritten. The audit compares the
// inputs and outputs of every instruction of a step with the expected values, and reports the
// instructions that differ.
//
// Algorithm. Before an instruction, its operands are copied, and its inputs are compared with the
// last writes (AuditShadow, AuditFiles), which reveals values that were overwritten between write
// and read. After the instruction, inputs and scalars must be unchanged, and the outputs are
// judged. Kernels are judged later, many at a time on all threads, which needs only the copies
// (take(), judge()). Collectives, copies, file transfers and decisions are judged immediately
// (judge_move()).
//
// Cost. A step takes as long as the reference kernels, which is minutes to hours for a real model.
// The operands of launches that have not been judged take additional memory.

#include "diagnostics/audit_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>

#include "core/base/element_run.h"
#include "core/base/error.h"
#include "core/program/levels.h"
#include "core/program/mesh.h"
#include "core/program/operand_view.h"
#include "exec/executor.h"
#include "zero/zero_plan.h"

namespace ds {
namespace {

// Launches are judged together, in parallel, as soon as there are kJobsPerThread for each thread or
// their tensors have this many bytes.
constexpr size_t kJobBytes = size_t{256} << 20;
constexpr int kJobsPerThread = 8;

bool is_input(const Operand& operand) { return operand.access == Access::read; }

// Returns a copy of the present content of an operand.
AuditTensor read_operand(const StepSight& sight, const Operand& operand) {
  TensorView shape = operand_view(operand, sight.tokens);
  AuditTensor copy(shape, shape.dtype);
  sight.runtime.memory().read(sight.program.buffers[operand.buffer], operand.begin,
                              copy.view().data, copy.view().bytes());
  return copy;
}

// Returns this rank's group: the ranks of its block that differ from it by multiples of the stride.
AuditGroup group_of(const Program& program, const RankGroup& ranks) {
  int block = ranks.size * ranks.stride;
  int first = program.rank / block * block + program.rank % ranks.stride;
  AuditGroup group;
  for (int k = 0; k < ranks.size; ++k) {
    int rank = first + k * ranks.stride;
    if (rank == program.rank) group.own = static_cast<size_t>(k);
    group.ranks.push_back(rank);
  }
  return group;
}

bool same_bits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

Verdict judge_number(const char* name, double got, double want) {
  if (same_bits(got, want) || (std::isnan(got) && std::isnan(want))) return {};
  return Verdict::wrong(fmt::format("{}: {:.17g} instead of {:.17g}", name, got, want));
}

// Returns the scalars that a decision has written.
StepScalars block_of(const StepSight& sight, const Instr& in) {
  StepScalars block;
  const Operand& written = in.operands.back();
  sight.runtime.memory().read(sight.program.buffers[written.buffer], written.begin, &block,
                              sizeof block);
  return block;
}

bool copies(const StepSight& sight, InstrId instr) {
  return sight.program.instrs[instr].def->kind == Kind::copy;
}

// Judges the norm of the mean gradient, the factor that scales gradients, and whether the step is
// skipped. The norm is computed from the sums of squares, in f64 and in the order of parameters.
// For gradients that stay on their ranks, it is the root of the mean square over the ranks.
Verdict judge_clip(const StepSight& sight, const Instr& in, const TensorView& norms) {
  std::vector<double> terms;
  const StepScalars block = block_of(sight, in);
  double scale = divisor_of(block);
  const ElementRun whole{0, norms.numel(), 0};
  for (const ElementRun& run : in.runs.empty() ? std::span(&whole, 1) : std::span(in.runs)) {
    for (int64_t i = run.begin; i < run.end; ++i) terms.push_back(norms.as<double>()[i]);
  }
  // Adds up blocks of 256 terms, then the sums of the blocks, and so on.
  while (terms.size() > 1) {
    size_t blocks = 0;
    for (size_t begin = 0; begin < terms.size(); begin += 256, ++blocks) {
      auto first = terms.begin() + static_cast<std::ptrdiff_t>(begin);
      auto end = terms.begin() + static_cast<std::ptrdiff_t>(std::min(begin + 256, terms.size()));
      terms[blocks] = std::accumulate(first, end, 0.0);
    }
    terms.resize(blocks);
  }
  double ranks = static_cast<double>(in.attrs.integer_or("ranks", 1));
  double norm = std::sqrt(terms.empty() ? 0.0 : terms[0] * ranks) / scale,
         most = in.attrs.real("max_norm"), factor = 1;
  if (most > 0 && norm + 1e-6 > most) factor = most / (norm + 1e-6);
  bool skip = !std::isfinite(norm) || !std::isfinite(block.loss);
  if (in.attrs.integer_or("unchecked", 0) != 0) skip = false;
  skip = skip || !(block.weight > 0);
  Verdict worst = judge_number("norm", block.grad_norm, norm);
  if (std::isfinite(norm))
    worst.keep_worse(judge_number("scale", block.grad_scale, factor / scale));
  worst.keep_worse(judge_number("skip", static_cast<double>(block.skip), skip ? 1 : 0));
  return worst;
}

// Judges the weighted mean of the losses of all leaves, micro-step by micro-step in f64, and the
// number and the weights of the leaves.
Verdict judge_losses(const StepSight& sight, const Instr& in, const TensorView& all) {
  const StepScalars block = block_of(sight, in);
  double sum = 0, weights = 0;
  int64_t leaves = 0, micros = sight.zero.accumulation, unit = sight.zero.memory.loss_unit;
  int64_t ranks = sight.program.mesh.data_size();
  for (int64_t leaf = 0; leaf < micros * ranks; ++leaf) {
    const float* own = all.as<float>() + leaf % ranks * (all.numel() / ranks);
    float loss = own[leaf / ranks];
    if (std::bit_cast<uint32_t>(loss) == kNoLeaf) continue;
    ++leaves;
    double weight = unit > 0 ? own[micros + leaf / ranks] : 1;
    if (weight > 0) sum += weight * loss;
    weights += weight;
  }
  Verdict worst =
      judge_number("leaves", static_cast<double>(block.leaves), static_cast<double>(leaves));
  worst.keep_worse(judge_number("loss", block.loss, sum / weights));
  worst.keep_worse(judge_number("weight", block.weight,
                                weights / static_cast<double>(std::max<int64_t>(unit, 1))));
  return worst;
}

}  // namespace

StepAudit::StepAudit(int threads) : team_(threads) { register_ref(reference_); }

// Copies the operands of the instruction, and compares its inputs with the last writes.
void StepAudit::before(const StepSight& sight, Position at) {
  InstrId instr = at.instr;
  if (instr == InstrId(0)) {
    shadow_.emplace(sight);
    files_.begin(sight);
    verdicts_.assign(sight.program.instrs.size(), {});
  }
  scalars_ = sight.control.scalars();
  parts_.clear();
  for (const Operand& listed : sight.program.instrs[instr].operands) {
    Operand operand = in_round(listed, at.round);
    const Buffer& buffer = sight.program.buffers[operand.buffer];
    // The engine writes scalars, too, so they are checked separately (check_scalars()).
    bool scalars = buffer.holds == Holds::scalars;
    if (buffer.tier == Tier::nvme || (scalars && !copies(sight, instr))) continue;
    Part part{operand,
              sight.runtime.memory().address(buffer) + operand.begin,
              read_operand(sight, operand),
              {}};
    if (operand.access != Access::write && !scalars) {
      std::string changed = shadow_->difference(operand, part.was.view());
      if (!changed.empty()) add(instr, Verdict::wrong(changed));
    }
    parts_.push_back(std::move(part));
  }
}

// Outputs are recorded in the shadow before any copy is dropped, because an instruction may write a
// buffer that it uses for the last time.
void StepAudit::after(const StepSight& sight, Position at) {
  InstrId instr = at.instr;
  const Instr& in = sight.program.instrs[instr];
  for (Part& part : parts_) part.now.emplace(read_operand(sight, part.operand));
  check_inputs(instr);
  check_scalars(sight, instr);
  for (const Part& part : parts_) {
    bool scalars = sight.program.buffers[part.operand.buffer].holds == Holds::scalars;
    if (!is_input(part.operand) && !scalars)
      shadow_->written(sight, part.operand, part.now->view(), instr);
  }
  for (const Part& part : parts_) shadow_->ended(part.operand);
  Kind kind = in.def->kind;
  if (kind == Kind::model || kind == Kind::state || kind == Kind::update) {
    take(sight, at);
  } else {
    add(instr, judge_move(sight, instr));
  }
}

const std::vector<Verdict>& StepAudit::verdicts() {
  judge();
  return verdicts_;
}

// A verdict of equal bits has no place, so any later verdict replaces it; every other verdict is
// replaced only by one with a larger share.
void StepAudit::add(InstrId instr, Verdict verdict) {
  verdicts_[instr].keep_worse(std::move(verdict));
}

// Compares the addresses of the two operands.
bool StepAudit::overlap(const Part& a, const Part& b) {
  return a.place < b.place + bytes_of(b.was.view()) && b.place < a.place + bytes_of(a.was.view());
}

// Compares the inputs before and after the instruction, except those whose memory an output reuses.
void StepAudit::check_inputs(InstrId instr) {
  for (const Part& part : parts_) {
    if (!is_input(part.operand)) continue;
    bool given_up = std::ranges::any_of(parts_, [&](const Part& other) {
      return !is_input(other.operand) && overlap(part, other);
    });
    // The program lets an output overwrite this input.
    if (given_up) continue;
    Verdict same = judge_bits(part.now->view(), part.was.view(), "input");
    if (!same.passed()) add(instr, Verdict::wrong("changes its " + same.where));
  }
}

// Only decisions and copies may change the step's scalars.
void StepAudit::check_scalars(const StepSight& sight, InstrId instr) {
  if (sight.program.instrs[instr].def->kind == Kind::decision || copies(sight, instr)) return;
  if (std::memcmp(&scalars_, &sight.control.scalars(), sizeof scalars_) != 0)
    add(instr, Verdict::wrong("changes the scalars of the step"));
}

// The tensors are moved into the job, so parts_ must not be used afterwards.
void StepAudit::take(const StepSight& sight, Position at) {
  const Instr& in = sight.program.instrs[at.instr];
  Job job{at.instr, {}};
  job.run.op = in.def->name;
  job.run.attrs = &in.attrs;
  job.run.scalars = scalars_;
  job.run.leaf = sight.program.mesh.leaf(sight.program.micro(at).number(), sight.program.rank);
  job.run.parts = in.runs;
  job.run.groups = sight.control.groups();
  for (Part& part : parts_) {
    if (!is_input(part.operand)) job.run.after.push_back(std::move(*part.now));
    (is_input(part.operand) ? job.run.in : job.run.before).push_back(std::move(part.was));
  }
  job_bytes_ += job.run.bytes();
  jobs_.push_back(std::move(job));
  if (jobs_.size() >= static_cast<size_t>(team_.size() * kJobsPerThread) || job_bytes_ >= kJobBytes)
    judge();
  sight.comm().tick();
}

// Jobs are independent, so they run on all threads; each runs its reference kernels on one thread.
void StepAudit::judge() {
  std::vector<Verdict> found(jobs_.size());
  team_.parallel_for(static_cast<int64_t>(jobs_.size()), [&](int64_t i, int) {
    auto at = static_cast<size_t>(i);
    found[at] = judge_kernel(reference_, jobs_[at].run);
  });
  for (size_t i = 0; i < jobs_.size(); ++i) add(jobs_[i].instr, std::move(found[i]));
  jobs_.clear();
  job_bytes_ = 0;
}

// The default case is an instruction that the host of a delegate engine performs.
Verdict StepAudit::judge_move(const StepSight& sight, InstrId instr) {
  const Instr& in = sight.program.instrs[instr];
  switch (in.def->kind) {
    case Kind::collective:
      return judge_collective(in.def->op, group_of(sight.program, in.group), parts_[0].was.view(),
                              parts_[1].now->view(), sight.comm(), label_of(sight.program, in));
    case Kind::copy:
      return judge_bits(parts_[1].now->view(), parts_[0].was.view(), "output 0");
    case Kind::file:
      return files_.judge(sight, in, parts_[0].now->view());
    case Kind::decision:
      return in.def->op == Op::clip ? judge_clip(sight, in, parts_[0].was.view())
                                    : judge_losses(sight, in, parts_[0].was.view());
    default:
      return Verdict::unaudited("the host program runs here");
  }
}

}  // namespace ds
