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
#include "zero/policy.h"

namespace ds {
namespace {

// Launches are judged together, one a thread, when there are several a thread or they hold so much.
constexpr size_t kJobBytes = size_t{256} << 20;
constexpr int kJobsPerThread = 8;

bool is_input(const Operand& operand) { return operand.access == Access::read; }

// A copy of what an operand holds now.
AuditTensor read_operand(const StepSight& sight, const Operand& operand) {
  TensorView shape = operand_view(operand, sight.tokens);
  AuditTensor copy(shape, shape.dtype);
  sight.runtime.read(sight.program.buffers[operand.buffer], operand.begin, copy.view().data,
                     copy.view().bytes());
  return copy;
}

// The ranks whose numbers differ from this one's by multiples of the stride, inside one block.
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
  return Verdict::wrong(fmt::format("{}: {:.17g} for {:.17g}", name, got, want));
}

// The scalars that a decision has written.
StepScalars block_of(const StepSight& sight, const Instr& in) {
  StepScalars block;
  const Operand& written = in.operands.back();
  sight.runtime.read(sight.program.buffers[written.buffer], written.begin, &block, sizeof block);
  return block;
}

bool copies(const StepSight& sight, InstrId instr) {
  return sight.program.instrs[instr].def->kind == Kind::copy;
}

// Norm of the mean gradient and what it is scaled by: sums of squares in the order of parameters,
// in f64; of gradients that stayed on their ranks the root of the mean square.
Verdict judge_clip(const StepSight& sight, const Instr& in, const TensorView& norms) {
  std::vector<double> terms;
  const StepScalars block = block_of(sight, in);
  double scale = divisor_of(block);
  const ElementRun whole{0, norms.numel(), 0};
  for (const ElementRun& run : in.runs.empty() ? std::span(&whole, 1) : std::span(in.runs)) {
    for (int64_t i = run.begin; i < run.end; ++i) terms.push_back(norms.as<double>()[i]);
  }
  while (terms.size() > 1) {  // blocks of 256, then their sums
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

// Mean of the leaves of all ranks by what they count for, micro-step by micro-step, in f64.
Verdict judge_losses(const StepSight& sight, const Instr& in, const TensorView& all) {
  const StepScalars block = block_of(sight, in);
  double sum = 0, weights = 0;
  int64_t leaves = 0, micros = sight.zero.accumulation, unit = sight.zero.loss_unit;
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
    bool scalars = buffer.holds == Holds::scalars;  // the engine writes them, too
    if (buffer.tier == Tier::nvme || (scalars && !copies(sight, instr))) continue;
    Part part{
        operand, sight.runtime.address(buffer) + operand.begin, read_operand(sight, operand), {}};
    if (operand.access != Access::write && !scalars) {
      std::string changed = shadow_->difference(operand, part.was.view());
      if (!changed.empty()) add(instr, Verdict::wrong(changed));
    }
    parts_.push_back(std::move(part));
  }
}

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

// The worst that is said of an instruction stays.
void StepAudit::add(InstrId instr, Verdict verdict) {
  Verdict& kept = verdicts_[instr];
  if (verdict.share() > kept.share() || kept.passed()) kept = std::move(verdict);
}

bool StepAudit::overlap(const Part& a, const Part& b) {
  return a.place < b.place + bytes_of(b.was.view()) && b.place < a.place + bytes_of(a.was.view());
}

void StepAudit::check_inputs(InstrId instr) {
  for (const Part& part : parts_) {
    if (!is_input(part.operand)) continue;
    bool given_up = std::any_of(parts_.begin(), parts_.end(), [&](const Part& other) {
      return !is_input(other.operand) && overlap(part, other);
    });
    if (given_up) continue;  // the program says that the result takes its place
    Verdict same = judge_bits(part.now->view(), part.was.view(), "input");
    if (!same.passed()) add(instr, Verdict::wrong("changes its " + same.where));
  }
}

void StepAudit::check_scalars(const StepSight& sight, InstrId instr) {
  if (sight.program.instrs[instr].def->kind == Kind::decision || copies(sight, instr)) return;
  if (std::memcmp(&scalars_, &sight.control.scalars(), sizeof scalars_) != 0)
    add(instr, Verdict::wrong("changes the scalars of the step"));
}

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

// Of what no kernel does.
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
