#pragma once
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/kernel.h"

namespace ds {

// How far a correct kernel may be from the reference. tests/conformance and `libds audit` check
// every implementation by this one table.
struct Accuracy {
  // An operation or instruction of docs/reference/ops.md.
  std::string_view op;
  // Returns the number of terms of the longest sum that contributes to an output element, for
  // operands of these shapes.
  int64_t (*terms)(const Attrs& attrs, std::span<const TensorView> in);
  // Whether docs/reference/ops.md allows only one result, as for copies, one operation for each
  // element, or sums in a prescribed order. Every implementation then equals the reference bit for
  // bit.
  bool one_result = false;
  // Whether weights that sum to 1 may be rounded to the type of the operands before they are
  // multiplied.
  bool rounds_weights = false;
  // Whether, with attribute `kept`, logits are rounded to the type of the operands before their
  // softmax.
  bool rounds_logits = false;
};
// Returns the row of an operation, or null if no bound is known.
const Accuracy* find_accuracy(std::string_view op);
std::span<const Accuracy> accuracy_table();

// The unit in which the errors of one output are measured: `sums` * largest + `stored` * |element|
// + `least`.
struct ErrorUnit {
  // The expected error from rounding partial sums, relative to the largest element of the
  // reference's output.
  double sums = 0;
  // The rounding error of storing an element, relative to that element.
  double stored = 0;
  // An absolute part: half the distance between subnormal numbers for f16, 0 for other types.
  double least = 0;
  double of(double largest, double want) const {
    return sums * largest + stored * std::abs(want) + least;
  }
};
// Returns the unit for an output of type `stored` whose elements are sums of `terms`, from operands
// of type `operands`. Arithmetic is in f32, or in f64 for f64. Rounding errors are treated as
// independent, so the error of a sum grows like the square root of the number of its terms. If
// weights are rounded, a quarter of their rounding error is added to `sums`, because the errors
// partly average out over the terms. Rounding the largest logit changes all terms of a softmax
// alike, by an error in proportion to the logit; kMostUnits leaves room for logits of 16.
ErrorUnit error_unit(const Accuracy& accuracy, const Attrs& attrs, int64_t terms, DType operands,
                     DType stored);

// The error of a correct kernel is below this many units.
inline constexpr double kMostUnits = 8;

// Returns the unit in which rounding errors of a floating-point type are measured. For f32 and f64
// it is half the distance from 1 to the next larger number, for bf16 and f16 a quarter.
double unit_roundoff(DType dtype);

}  // namespace ds
