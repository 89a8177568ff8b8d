#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "diagnostics/golden.h"

namespace ds {

// The result of one kind of comparison over many places (tensors, tokens or steps): the error that
// is the largest share of its tolerance.
struct Finding {
  // The kind of comparison, such as "grad", and how it measures errors, such as "rel".
  std::string kind;
  std::string measure;
  double error = 0;
  double tolerance = 0;
  // The place of `error`.
  std::string where;
  // Every place whose error exceeds its tolerance. NaN exceeds any tolerance.
  std::vector<std::string> beyond;
  // The places that libds cannot compute, each with the reason.
  std::vector<std::string> refused = {};

  bool passed() const { return beyond.empty(); }
  // Returns whether any place was compared.
  bool compared() const { return !where.empty(); }
  // Returns error / tolerance; infinite if the tolerance is 0 and the error is not.
  double share() const;
  // Adds a place. Each place may have a different tolerance.
  void see(double place_error, double place_tolerance, const std::string& place);
};

// The numbers of a recorded run, as libds computes them.
struct RunNumbers {
  std::vector<double> loss, grad_norm;
  // Used only if the record has a final loss.
  double final_loss = 0;
};

// Compares logits [rows, tokens, vocabulary]. Tokens that batch.mask hides are not compared.
Finding compare_logits(const GoldenBatch& batch, std::span<const float> got,
                       std::span<const float> want, double tolerance);

// A comparison of gradients by their absolute error, and by their error relative to the largest
// magnitude in the tensor. Tensors in Golden::grad_zero, and tensors that are recorded as all
// zeros, are not compared by relative error.
class GradComparison {
 public:
  explicit GradComparison(const Golden& golden);
  // Adds the gradient of one parameter.
  void see(const std::string& name, std::span<const float> got, std::span<const float> want);
  const Finding& absolute() const { return abs_; }
  const Finding& relative() const { return rel_; }

 private:
  const Golden& golden_;
  Finding abs_, rel_;
};

// Compares losses, including the final loss, by absolute error, and gradient norms by relative
// error, except that a norm that is recorded as 0 is compared by absolute error.
std::vector<Finding> compare_run(const GoldenRun& want, const RunNumbers& got);

// A comparison of the sums and the l2 norms of final parameters.
class ParamComparison {
 public:
  void see(const GoldenParam& want, std::span<const float> values);
  const Finding& sum() const { return sum_; }
  const Finding& l2() const { return l2_; }

 private:
  Finding sum_{"final_params", "sum", 0, 0, "", {}}, l2_{"final_params", "l2", 0, 0, "", {}};
};

// Compares `got`, the continuation of text number `index`, token by token up to the first
// difference. A difference is an error of 1 in `found`, unless the two best recorded logits are
// within `logits_abs` of each other: then any other token is accepted.
void compare_text(const GoldenText& want, size_t index, std::span<const int32_t> got,
                  double logits_abs, Finding& found);

// Returns the table of findings, followed by a line for each finding that did not pass and for each
// place that was not compared.
std::string findings_text(std::span<const Finding> findings);
Json findings_json(std::span<const Finding> findings);

}  // namespace ds
