// Problem. The result of a kernel depends on the order of its sums, so there is no single correct
// value. A bound must be loose enough for every correct order and tight enough to detect an error
// in one element.
//
// Algorithm. An operation that has only one correct result is compared bit by bit with the
// reference (judge_equal()). Any other operation is compared with the reference in f64, on the
// kernel's own operands, within kMostUnits units of kernels/accuracy.h: a unit is the rounding
// error of the output plus the rounding error of a sum with the operation's number and size of
// terms (judge_bounded()). If terms cancel, this unit is too small even for correct kernels; then
// the error of the reference itself, in f32 and on operands that are each off by a rounding error,
// is added.

#include "diagnostics/audit_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "core/base/element_run.h"
#include "core/base/error.h"
#include "core/base/group_scalars.h"
#include "core/base/half.h"
#include "core/base/random.h"
#include "core/graph/ops.h"
#include "core/program/operand_view.h"
#include "kernels/accuracy.h"

namespace ds {
namespace {

// Bytes of scratch memory. The reference in f64 may have larger temporaries than other kernels.
constexpr size_t kScratch = size_t{64} << 20;

bool is_real(DType dtype) {
  return dtype == DS_DTYPE_F32 || dtype == DS_DTYPE_BF16 || dtype == DS_DTYPE_F16 ||
         dtype == DS_DTYPE_F64;
}

// Sets element e of a view of f64 or f32.
void put(const TensorView& view, int64_t e, double x) {
  if (view.dtype == DS_DTYPE_F64) {
    view.as<double>()[e] = x;
  } else {
    view.as<float>()[e] = static_cast<float>(x);
  }
}

std::vector<TensorView> views_of(const std::vector<AuditTensor>& tensors) {
  std::vector<TensorView> out;
  for (const AuditTensor& tensor : tensors) out.push_back(tensor.view());
  return out;
}

// Returns, for each view, the elements that the part of an update covers.
std::vector<TensorView> part_of(std::vector<TensorView> views, const ElementRun& part,
                                int64_t total) {
  for (TensorView& view : views) view = part_of_update(view, part.begin, part.end, total);
  return views;
}

// Runs the reference kernel of run.op, on the given operands instead of the run's own.
void run_reference(const KernelRegistry& reference, const KernelRun& run,
                   const std::vector<AuditTensor>& in, const std::vector<AuditTensor>& out) {
  std::vector<DType> in_types, out_types;
  for (const AuditTensor& tensor : in) in_types.push_back(tensor.view().dtype);
  for (const AuditTensor& tensor : out) out_types.push_back(tensor.view().dtype);
  KernelFn kernel = reference.find({run.op, in_types, out_types, *run.attrs}).run;
  ThreadTeam alone(1, kScratch);
  std::vector<TensorView> reads = views_of(in), writes = views_of(out);
  if (run.parts.empty()) return kernel({reads, writes, *run.attrs, run.scalars, run.leaf, alone});
  for (const ElementRun& part : run.parts) {
    const GroupScalars* group =
        part.group == 0 ? nullptr : &run.groups.at(static_cast<size_t>(part.group));
    const StepScalars own = scalars_of(run.scalars, {part.missed, part.param, part.element, group});
    const int64_t total = reads[0].numel();
    std::vector<TensorView> from = part_of(reads, part, total), to = part_of(writes, part, total);
    kernel({from, to, *run.attrs, own, run.leaf, alone});
  }
}

// Returns the error of an element. Equal values, including infinities, and any two NaN have error
// 0; if only one value is NaN, the error is infinite.
double error_of(double got, double want) {
  if (got == want || (std::isnan(got) && std::isnan(want))) return 0;
  double error = std::abs(got - want);
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

std::string place(const std::string& name, int64_t e, double got, double want) {
  return fmt::format("{}[{}]: {:.9g} instead of {:.9g}", name, e, got, want);
}

std::string output_name(size_t index) { return fmt::format("output {}", index); }

// Returns the number of outputs that are results; the outputs after them are scratch memory of the
// kernel.
size_t results_of(const KernelRun& run) {
  const OpDef* op = find_op(run.op);
  return op ? std::min(op->results(run.in.size()), run.after.size()) : run.after.size();
}

// Judges an operation with only one correct result: its bits must equal the bits of the reference.
Verdict judge_equal(const KernelRegistry& reference, const KernelRun& run) {
  std::vector<AuditTensor> want;
  for (const AuditTensor& tensor : run.before) want.emplace_back(tensor.view());
  run_reference(reference, run, run.in, want);
  Verdict worst;
  for (size_t i = 0; i < results_of(run); ++i) {
    worst.keep_worse(judge_bits(run.after[i].view(), want[i].view(), output_name(i)));
  }
  return worst;
}

// Returns the outputs of the reference with `real` (f64 or f32) in place of every floating type. If
// `noise` is positive, each element of the operands is changed at random by up to that share.
std::vector<AuditTensor> outputs_in(DType real, const KernelRegistry& reference,
                                    const KernelRun& run, double noise) {
  std::vector<AuditTensor> in, out;
  for (const AuditTensor& tensor : run.in) in.push_back(tensor.as(real));
  for (uint32_t i = 0; noise > 0 && i < in.size(); ++i) {
    const TensorView& view = in[i].view();
    if (!is_real(view.dtype)) continue;
    RandomStream stream{1, 0, i, 0};
    for (int64_t e = 0; e < view.numel(); ++e) {
      double draw =
          2.0 * static_cast<double>(uniform01(stream.block(static_cast<uint64_t>(e))[0])) - 1;
      put(view, e, element_of(view, e) * (1 + noise * draw));
    }
  }
  for (const AuditTensor& tensor : run.after) {
    out.emplace_back(tensor.view(), is_real(tensor.view().dtype) ? real : tensor.view().dtype);
  }
  run_reference(reference, run, in, out);
  return out;
}

// Returns the largest finite magnitude, but at least the smallest normal number, so that the result
// is never 0.
double largest_of(const TensorView& view) {
  double largest = std::numeric_limits<double>::min();
  for (int64_t e = 0; e < view.numel(); ++e) {
    double x = std::abs(element_of(view, e));
    if (std::isfinite(x)) largest = std::max(largest, x);
  }
  return largest;
}

// Returns the largest finite difference between the elements of two tensors.
double farthest(const TensorView& a, const TensorView& b) {
  double most = 0;
  for (int64_t e = 0; e < a.numel(); ++e) {
    double by = std::abs(element_of(a, e) - element_of(b, e));
    if (std::isfinite(by)) most = std::max(most, by);
  }
  return most;
}

bool all_finite(const std::vector<AuditTensor>& tensors) {
  return std::ranges::all_of(tensors, [](const AuditTensor& tensor) {
    const TensorView& view = tensor.view();
    for (int64_t e = 0; e < view.numel(); ++e) {
      if (!std::isfinite(element_of(view, e))) return false;
    }
    return true;
  });
}

// Returns the verdict on the worst element of an output. `rounded` is the result of the reference
// in f32, or null. The largest error of `rounded` is added to the bound, and an element of the
// output need not be finite if the same element of `rounded` is not, because sums have overflowed.
// `blown` says that an operand is not finite; then no element of the output need be finite.
Verdict judge_output(const TensorView& got, const TensorView& want, const ErrorUnit& unit,
                     const TensorView* rounded, bool blown, const std::string& name) {
  Verdict worst{Verdict::How::bound, 0, 0, ""};
  double largest = largest_of(want), slack = rounded ? farthest(*rounded, want) : 0;
  for (int64_t e = 0; e < got.numel(); ++e) {
    double x = element_of(got, e), y = element_of(want, e);
    bool overflow =
        !std::isfinite(x) && (blown || (rounded && !std::isfinite(element_of(*rounded, e))));
    double error = overflow ? 0 : error_of(x, y);
    double bound = kMostUnits * (unit.of(largest, std::isfinite(y) ? y : 0) + slack);
    if (!worst.where.empty() && error * worst.bound <= worst.error * bound) continue;
    worst.error = error;
    worst.bound = bound;
    worst.where = place(name, e, x, y);
  }
  return worst;
}

// Compares with the reference in f64 within a bound. The reference in f32 runs only if an element
// exceeds the bound, because it costs as much again.
Verdict judge_bounded(const KernelRegistry& reference, const KernelRun& run,
                      const Accuracy& accuracy) {
  int64_t terms = accuracy.terms(*run.attrs, views_of(run.in));
  std::vector<AuditTensor> want = outputs_in(DS_DTYPE_F64, reference, run, 0);
  Verdict worst{Verdict::How::bound, 0, 0, ""};
  for (size_t i = 0; i < results_of(run); ++i) {
    const TensorView &got = run.after[i].view(), &exact = want[i].view();
    if (!is_real(got.dtype)) {
      worst.keep_worse(judge_bits(got, exact, output_name(i)));
      continue;
    }
    const DType operands = run.in.empty() ? got.dtype : run.in[0].view().dtype;
    ErrorUnit unit = error_unit(accuracy, *run.attrs, terms, operands, got.dtype);
    Verdict own = judge_output(got, exact, unit, nullptr, false, output_name(i));
    if (!own.passed()) {
      double noise = error_unit(accuracy, *run.attrs, 1, operands, got.dtype).sums;
      std::vector<AuditTensor> rounded = outputs_in(DS_DTYPE_F32, reference, run, noise);
      own = judge_output(got, exact, unit, &rounded[i].view(), !all_finite(run.in), output_name(i));
    }
    worst.keep_worse(std::move(own));
  }
  return worst;
}

}  // namespace

double Verdict::share() const {
  if (error == 0) return 0;
  return bound > 0 ? error / bound : std::numeric_limits<double>::infinity();
}

void Verdict::keep_worse(Verdict other) {
  if (where.empty() || other.share() > share()) *this = std::move(other);
}

Verdict Verdict::wrong(std::string reason) {
  return {How::bits, std::numeric_limits<double>::infinity(), 0, std::move(reason)};
}

Verdict Verdict::unaudited(std::string reason) { return {How::unaudited, 0, 0, std::move(reason)}; }

AuditTensor::AuditTensor(const TensorView& like, DType dtype) : view_(like) {
  view_.dtype = dtype;
  size_t count = static_cast<size_t>(bytes_of(view_)) / sizeof(Line) + 1;
  lines_.reset(new Line[count]);
  view_.data = lines_.get();
  std::memset(view_.data, 0xFF, count * sizeof(Line));
}

AuditTensor::AuditTensor(const TensorView& like) : AuditTensor(like, like.dtype) {
  std::memcpy(view_.data, like.data, static_cast<size_t>(bytes_of(like)));
}

AuditTensor AuditTensor::as(DType dtype) const {
  if (!is_real(view_.dtype)) return AuditTensor(view_);
  AuditTensor out(view_, dtype);
  for (int64_t e = 0; e < view_.numel(); ++e) put(out.view_, e, element_of(view_, e));
  return out;
}

size_t KernelRun::bytes() const {
  int64_t sum = 0;
  for (const auto* list : {&in, &before, &after}) {
    for (const AuditTensor& tensor : *list) sum += bytes_of(tensor.view());
  }
  return static_cast<size_t>(sum);
}

Verdict judge_kernel(const KernelRegistry& reference, const KernelRun& run) {
  try {
    const Accuracy* accuracy = find_accuracy(run.op);
    if (!accuracy) return Verdict::unaudited("no bound is known");
    return accuracy->one_result ? judge_equal(reference, run)
                                : judge_bounded(reference, run, *accuracy);
  } catch (const Error& error) {
    if (error.status() != DS_ERROR_UNSUPPORTED) throw;
    return Verdict::unaudited(error.what());
  }
}

Verdict judge_bits(const TensorView& got, const TensorView& want, const std::string& name) {
  if (std::memcmp(got.data, want.data, static_cast<size_t>(bytes_of(want))) == 0) return {};
  auto size = static_cast<size_t>(size_of(got.dtype));
  for (int64_t e = 0; e < got.numel(); ++e) {
    size_t at = static_cast<size_t>(e) * size;
    if (std::memcmp(got.as<std::byte>() + at, want.as<std::byte>() + at, size) == 0) continue;
    double x = element_of(got, e), y = element_of(want, e);
    if (std::isnan(x) && std::isnan(y)) continue;
    Verdict out = Verdict::wrong(place(name, e, x, y));
    if (x != y && std::isfinite(x - y)) out.error = std::abs(x - y);
    return out;
  }
  return {};
}

double element_of(const TensorView& view, int64_t e) {
  switch (view.dtype) {
    case DS_DTYPE_F64:
      return view.as<double>()[e];
    case DS_DTYPE_F32:
      return view.as<float>()[e];
    case DS_DTYPE_BF16:
      return static_cast<double>(view.as<bf16>()[e]);
    case DS_DTYPE_F16:
      return widen_half(view.as<uint16_t>()[e]);
    case DS_DTYPE_I32:
      return view.as<int32_t>()[e];
    case DS_DTYPE_I64:
      return static_cast<double>(view.as<int64_t>()[e]);
    default:
      return view.as<uint8_t>()[e];
  }
}

int64_t bytes_of(const TensorView& view) { return view.numel() * size_of(view.dtype); }

}  // namespace ds
