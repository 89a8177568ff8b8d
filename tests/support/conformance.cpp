#include "support/conformance.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "core/graph/ops.h"

namespace ds::test {
namespace {

bool is_statistic(std::string_view op, size_t input, size_t inputs) {
  if (op == "attention_dx") return input + 1 == inputs;
  if (op == "layer_norm_dx") return input + 2 >= inputs;
  struct Row {
    std::string_view op;
    size_t first, last;
  };
  constexpr Row kRows[] = {{"layer_norm_dw", 2, 3},
                           {"rms_norm_dx", 3, 3},
                           {"rms_norm_dw", 2, 2},
                           {"load_balance_dx", 0, 0},
                           {"cross_entropy_dx", 0, 0},
                           {"cross_entropy_dx", 3, 3},
                           {"mse_dx", 0, 0},
                           {"preference_loss", 0, 2},
                           {"preference_loss_dx", 0, 3},
                           {"linear_cross_entropy_dx", 0, 0},
                           {"linear_cross_entropy_dx", 4, 4}};
  return std::any_of(std::begin(kRows), std::end(kRows), [&](const Row& row) {
    return row.op == op && input >= row.first && input <= row.last;
  });
}

TensorType type_of(const Tensor& tensor, DType dtype) {
  std::vector<Dim> dims(tensor.dims().begin(), tensor.dims().end());
  return {dtype, Shape(std::move(dims))};
}

// Returns the operands rounded to `dtype` and, if `widen` is set, widened again.
std::vector<Tensor> operands(const OpCase& c, DType dtype, bool widen) {
  std::vector<DType> types = input_types(c, dtype);
  std::vector<Tensor> in;
  for (size_t i = 0; i < c.in.size(); ++i) {
    in.push_back(c.in[i].as(types[i]));
    if (widen) in.back() = in.back().as(DS_DTYPE_F64);
  }
  return in;
}

std::vector<Tensor> run_on(const KernelImpl& impl, const OpCase& c, const std::vector<Tensor>& in,
                           DType dtype, ThreadTeam& team) {
  StepScalars scalars;
  scalars.seed = 7;
  scalars.step = 3;
  std::vector<Tensor> out;
  std::vector<TensorView> in_views, out_views;
  for (const TensorType& type : output_types(c, dtype)) {
    out.emplace_back(type, 1);
    out.back().poison();
  }
  for (const Tensor& tensor : in) in_views.push_back(tensor.view());
  for (const Tensor& tensor : out) out_views.push_back(tensor.view());
  launch(impl, c.attrs, in_views, out_views, team, scalars, 2);
  out.resize(std::min(out.size(), op(c.op).results(in.size())));
  return out;
}

}  // namespace

std::string OpCase::label() const {
  std::string text = op;
  for (const Tensor& tensor : in) text += " " + type_of(tensor, tensor.dtype()).shape.text();
  return attrs.empty() ? text : text + " " + attrs.print();
}

std::vector<DType> input_types(const OpCase& c, DType dtype) {
  std::vector<DType> types;
  for (size_t i = 0; i < c.in.size(); ++i) {
    DType statistic = dtype == DS_DTYPE_F64 ? DS_DTYPE_F64 : DS_DTYPE_F32;
    DType real = is_statistic(c.op, i, c.in.size()) ? statistic : dtype;
    types.push_back(c.in[i].dtype() == DS_DTYPE_I32 ? DS_DTYPE_I32 : real);
  }
  return types;
}

std::vector<TensorType> output_types(const OpCase& c, DType dtype) {
  std::vector<DType> types = input_types(c, dtype);
  std::vector<TensorType> in;
  for (size_t i = 0; i < c.in.size(); ++i) in.push_back(type_of(c.in[i], types[i]));
  return op(c.op).infer(in, c.attrs);
}

std::string refusal(const KernelImpl& impl, const OpCase& c, DType dtype) {
  if (impl.op != c.op) return "another op";
  std::vector<DType> in = input_types(c, dtype), out;
  for (const TensorType& type : output_types(c, dtype)) out.push_back(type.dtype);
  return impl.refuse ? impl.refuse({c.op, in, out, c.attrs}) : "";
}

std::vector<Tensor> run_case(const KernelImpl& impl, const OpCase& c, DType dtype,
                             ThreadTeam& team) {
  return run_on(impl, c, operands(c, dtype, false), dtype, team);
}

Deviation deviation(const KernelImpl& impl, const OpCase& c, DType dtype, ThreadTeam& team) {
  KernelRegistry reference;
  register_ref(reference);
  std::vector<Tensor> want = run_on(implementation(reference, c.op, "ref"), c,
                                    operands(c, dtype, true), DS_DTYPE_F64, team);
  std::vector<Tensor> got = run_case(impl, c, dtype, team);
  Deviation worst;
  std::vector<TensorView> in;
  for (const Tensor& tensor : c.in) in.push_back(tensor.view());
  const Accuracy* accuracy = find_accuracy(c.op);
  ensure(accuracy, "kernels/accuracy has no row of '{}'", c.op);
  int64_t terms = accuracy->terms(c.attrs, in);
  for (size_t i = 0; i < got.size(); ++i) {
    double largest = std::numeric_limits<double>::min();
    for (int64_t e = 0; e < want[i].numel(); ++e)
      largest = std::max(largest, std::abs(want[i].at(e)));
    ErrorUnit unit = error_unit(*accuracy, c.attrs, terms, dtype, got[i].dtype());
    for (int64_t e = 0; e < want[i].numel(); ++e) {
      double x = got[i].at(e), y = want[i].at(e);
      double error = std::abs(x - y) / unit.of(largest, y);
      if (!std::isfinite(error)) error = std::numeric_limits<double>::infinity();
      if (error > worst.error)
        worst = {error, fmt::format("output {} element {}: got {}, want {}", i, e, x, y)};
    }
  }
  return worst;
}

std::vector<Tensor> run_case(const KernelImpl& impl, const InstructionCase& c, ThreadTeam& team) {
  std::vector<Tensor> out = c.out;
  std::vector<TensorView> in_views, out_views;
  for (const Tensor& tensor : c.in) in_views.push_back(tensor.view());
  for (const Tensor& tensor : out) out_views.push_back(tensor.view());
  impl.run({in_views, out_views, c.attrs, c.scalars, 0, team, c.runs});
  return out;
}

}  // namespace ds::test
