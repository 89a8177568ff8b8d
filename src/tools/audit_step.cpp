#include "tools/audit_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>

#include "core/base/error.h"
#include "core/program/element_run.h"
#include "core/program/levels.h"
#include "core/program/mesh.h"
#include "exec/executor.h"
#include "zero/insert.h"

namespace ds {
namespace {

// Launches are judged together, one a thread, when there are several a thread or they hold so much.
constexpr size_t kJobBytes = size_t{256} << 20;
constexpr int kJobsPerThread = 8;

bool is_input(const Operand& operand) { return operand.access == Access::read; }

TensorView view_of(const StepSight& sight, const Operand& operand) {
  TensorView view;
  view.data = place_of(sight, operand.buffer) + operand.begin;
  view.dtype = operand.type.dtype;
  view.rank = static_cast<int>(operand.type.shape.rank());
  for (size_t d = 0; d < operand.type.shape.rank(); ++d) {
    const Dim& dim = operand.type.shape[d];
    view.dims[d] = dim.symbolic ? sight.tokens : dim.extent;
  }
  return view;
}

bool overlap(const TensorView& a, const TensorView& b) {
  const auto *x = a.as<std::byte>(), *y = b.as<std::byte>();
  return x < y + bytes_of(b) && y < x + bytes_of(a);
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

bool same_bits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

Verdict judge_number(const char* name, double got, double want) {
  if (same_bits(got, want) || (std::isnan(got) && std::isnan(want))) return {};
  return Verdict::wrong(fmt::format("{}: {:.17g} for {:.17g}", name, got, want));
}

// Norm of the mean gradient and what it is scaled by: sums of squares in the order of parameters, in f64.
Verdict judge_clip(const StepSight& sight, const Instr& in, const TensorView& norms) {
  std::vector<double> terms;
  double leaves = static_cast<double>(std::max<int64_t>(sight.control.leaves(), 1));
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
  double norm = std::sqrt(terms.empty() ? 0.0 : terms[0]) / leaves, most = in.attrs.real("max_norm"),
         factor = 1;
  if (most > 0 && norm + 1e-6 > most) factor = most / (norm + 1e-6);
  bool skip = !std::isfinite(norm) || !std::isfinite(sight.control.loss());
  Verdict worst = judge_number("norm", sight.control.scalars().grad_norm, norm);
  if (std::isfinite(norm))
    worst.keep_worse(judge_number("scale", sight.control.scalars().grad_scale, factor / leaves));
  worst.keep_worse(judge_number("skip", static_cast<double>(sight.control.scalars().skip), skip ? 1 : 0));
  return worst;
}

// Mean of the leaves of all ranks, micro-step by micro-step, in f64.
Verdict judge_losses(const StepSight& sight, const TensorView& all) {
  double sum = 0;
  int64_t leaves = 0, micros = sight.zero.accumulation;
  int64_t ranks = sight.program.mesh.data_size();
  for (int64_t leaf = 0; leaf < micros * ranks; ++leaf) {
    int64_t rank = leaf % ranks, micro = leaf / ranks;
    float loss = all.as<float>()[rank * micros + micro];
    if (std::bit_cast<uint32_t>(loss) == kNoLeaf) continue;
    sum += loss;
    ++leaves;
  }
  Verdict worst =
      judge_number("leaves", static_cast<double>(sight.control.leaves()), static_cast<double>(leaves));
  worst.keep_worse(judge_number("loss", sight.control.loss(), sum / static_cast<double>(leaves)));
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
    if (buffer.tier == Tier::nvme || buffer.holds == Holds::scalars) continue;
    Part part{operand, view_of(sight, operand), {}};
    if (operand.access != Access::write) {
      std::string changed = shadow_->difference(operand, part.view);
      if (!changed.empty()) add(instr, Verdict::wrong(changed));
    }
    part.was.emplace(part.view);
    parts_.push_back(std::move(part));
  }
}

void StepAudit::after(const StepSight& sight, Position at) {
  InstrId instr = at.instr;
  const Instr& in = sight.program.instrs[instr];
  check_inputs(instr);
  check_scalars(sight, instr);
  Kind kind = in.def->kind;
  if (kind == Kind::model || kind == Kind::state || kind == Kind::update) {
    take(sight, at);
  } else {
    add(instr, judge_move(sight, instr));
  }
  for (const Part& part : parts_) {
    if (!is_input(part.operand)) shadow_->written(sight, part.operand, part.view, instr);
  }
  for (const Part& part : parts_) shadow_->ended(part.operand);
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

void StepAudit::check_inputs(InstrId instr) {
  for (const Part& part : parts_) {
    if (!is_input(part.operand)) continue;
    bool given_up = std::any_of(parts_.begin(), parts_.end(), [&](const Part& other) {
      return !is_input(other.operand) && overlap(part.view, other.view);
    });
    if (given_up) continue;  // the program says that the result takes its place
    Verdict same = judge_bits(part.view, part.was->view(), "input");
    if (!same.passed()) add(instr, Verdict::wrong("changes its " + same.where));
  }
}

void StepAudit::check_scalars(const StepSight& sight, InstrId instr) {
  if (sight.program.instrs[instr].def->kind == Kind::decision) return;
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
  for (Part& part : parts_) {
    if (!is_input(part.operand)) job.run.after.emplace_back(part.view);
    (is_input(part.operand) ? job.run.in : job.run.before).push_back(std::move(*part.was));
  }
  job_bytes_ += job.run.bytes();
  jobs_.push_back(std::move(job));
  if (jobs_.size() >= static_cast<size_t>(team_.size() * kJobsPerThread) || job_bytes_ >= kJobBytes) judge();
  sight.comm.tick();
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
      return judge_collective(in.def->op, group_of(sight.program, in.group), parts_[0].was->view(),
                              parts_[1].view, sight.comm, label_of(sight.program, in));
    case Kind::copy:
      return judge_bits(parts_[1].view, parts_[0].was->view(), "output 0");
    case Kind::file:
      return files_.judge(sight, in, parts_[0].view);
    case Kind::decision:
      return in.def->op == Op::clip ? judge_clip(sight, in, parts_[0].was->view())
                                    : judge_losses(sight, parts_[0].was->view());
    default:
      return Verdict::unaudited("the host program runs here");
  }
}

}  // namespace ds
