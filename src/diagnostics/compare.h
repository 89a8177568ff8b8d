#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "diagnostics/golden.h"

namespace ds {

// One comparison: the largest error, as a share of its tolerance, over everything of its kind.
struct Finding {
  std::string kind;     // "grad"
  std::string measure;  // "rel"
  double error = 0;
  double tolerance = 0;
  std::string where;                // of that error: a tensor, a token, a step
  std::vector<std::string> beyond;  // every place whose error passes its tolerance; NaN passes any
  std::vector<std::string> refused = {};  // places that libds cannot compute, and why

  bool passed() const { return beyond.empty(); }
  bool compared() const { return !where.empty(); }  // at any place
  double share() const;  // error / tolerance; infinite where tolerance is 0 and error is not
  // Takes in one more place. Its tolerance may differ from that of other places.
  void see(double place_error, double place_tolerance, const std::string& place);
};

// What one recorded run gave here.
struct RunNumbers {
  std::vector<double> loss, grad_norm;
  double final_loss = 0;  // used where the record has one
};

// got and want are [rows, tokens, vocabulary]; rows that batch.mask hides are not compared.
Finding compare_logits(const GoldenBatch& batch, std::span<const float> got,
                       std::span<const float> want, double tolerance);

// Absolute error over all tensors, and error by the tensor's largest value but for those of
// grad_zero and those that are recorded as 0 throughout.
class GradComparison {
 public:
  explicit GradComparison(const Golden& golden);
  void see(const std::string& name, std::span<const float> got, std::span<const float> want);
  const Finding& absolute() const { return abs_; }
  const Finding& relative() const { return rel_; }

 private:
  const Golden& golden_;
  Finding abs_, rel_;
};

// Losses (with the final one) absolute, gradient norms relative, but absolute where 0 is recorded.
std::vector<Finding> compare_run(const GoldenRun& want, const RunNumbers& got);

// Sum and l2 norm of tensors.
class ParamComparison {
 public:
  void see(const GoldenParam& want, std::span<const float> values);
  const Finding& sum() const { return sum_; }
  const Finding& l2() const { return l2_; }

 private:
  Finding sum_{"final_params", "sum", 0, 0, "", {}}, l2_{"final_params", "l2", 0, 0, "", {}};
};

// Compares `got`, the continuation of text `index`, token by token up to the first difference, and
// adds to `found` 1 for a difference that the margin does not forgive: another token may be picked
// where the two best logits are within `logits_abs`.
void compare_text(const GoldenText& want, size_t index, std::span<const int32_t> got,
                  double logits_abs, Finding& found);

// The table of findings, with a line for each that did not pass.
std::string findings_text(std::span<const Finding> findings);
Json findings_json(std::span<const Finding> findings);

}  // namespace ds
