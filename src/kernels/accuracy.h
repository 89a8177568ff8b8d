#pragma once
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/kernel.h"

namespace ds {

// How far a correct kernel may be from the reference. tests/conformance and `libds audit` hold
// every implementation against this one table.
struct Accuracy {
  std::string_view op;  // of docs/reference/ops.md, operations and instructions alike
  // The terms of the longest sum behind an element of an output, for operands of these extents.
  int64_t (*terms)(const Attrs& attrs, std::span<const TensorView> in);
  // The description leaves one result: copies, one operation for each element, sums in an order
  // that it gives. Every implementation then equals the reference bit by bit.
  bool one_result = false;
  // Weights that sum up to 1 may be rounded to the type of the operands before they multiply.
  bool rounds_weights = false;
  // With attribute `kept`, logits are rounded to the type of the operands before their softmax.
  bool rounds_logits = false;
};
const Accuracy* find_accuracy(std::string_view op);  // null: no bound is known
std::span<const Accuracy> accuracy_table();

// The unit in which the errors of one output are counted. `sums` is what the roundings of partial
// sums are expected to lose when the largest element of the output is what is added up; `stored` is
// the one rounding when an element is stored.
struct ErrorUnit {
  double sums = 0;    // of the largest element of the reference's output
  double stored = 0;  // of the element itself
  double least = 0;   // whatever the element: half the distance of subnormal numbers
  double of(double largest, double want) const {
    return sums * largest + stored * std::abs(want) + least;
  }
};
// Of an output of type `stored` whose elements are sums of `terms`, of operands of type `operands`.
// Arithmetic is in f32, or in f64 for f64. Rounded weights are errors that average out over the
// terms: a quarter of their rounding is in `sums`. A rounded largest logit moves all terms of a
// softmax alike, by its size: with kMostUnits, there is room for logits of 16.
ErrorUnit error_unit(const Accuracy& accuracy, const Attrs& attrs, int64_t terms, DType operands,
                     DType stored);

// A correct kernel stays below so many units.
inline constexpr double kMostUnits = 8;

// Half the distance from 1 to the next number of a floating type.
double unit_roundoff(DType dtype);

}  // namespace ds
