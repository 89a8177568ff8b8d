// Comparisons are pure functions of numbers and tolerances. A Finding keeps the place whose error
// is the largest share of its tolerance, and the names of all places whose errors exceed their
// tolerances.

#include "diagnostics/compare.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/contains.h"
#include "core/base/error.h"
#include "core/base/json.h"

namespace ds {
namespace {

// The maximum number of places that the text lists for a failed finding.
constexpr size_t kNamed = 12;

// Throws if the sizes differ, because then the record belongs to another model.
void check_sizes(const std::string& name, size_t got, size_t want) {
  if (got == want) return;
  raise(DS_ERROR_CONFIG, "{} has {} elements in the model, but {} in the recorded numbers", name,
        got, want);
}

double distance(double a, double b) { return std::abs(a - b); }

}  // namespace

double Finding::share() const {
  if (error == 0) return 0;
  return tolerance > 0 ? error / tolerance : std::numeric_limits<double>::infinity();
}

// NaN is treated as an infinite error, so it exceeds every tolerance.
void Finding::see(double place_error, double place_tolerance, const std::string& place) {
  if (std::isnan(place_error)) place_error = std::numeric_limits<double>::infinity();
  Finding here{kind, measure, place_error, place_tolerance, place, {}};
  if (where.empty() || here.share() > share()) {
    error = place_error;
    tolerance = place_tolerance;
    where = place;
  }
  if (place_error > place_tolerance) beyond.push_back(place);
}

// The error of a token is the error of its worst logit, which the report names.
Finding compare_logits(const GoldenBatch& batch, std::span<const float> got,
                       std::span<const float> want, double tolerance) {
  check_sizes("logits", got.size(), want.size());
  auto rows = static_cast<size_t>(batch.rows * batch.tokens);
  size_t vocabulary = want.size() / rows;
  Finding found{"logits", "abs", 0, tolerance, "", {}};
  for (size_t r = 0; r < rows; ++r) {
    if (!batch.mask.empty() && batch.mask[r] == 0) continue;
    double worst = 0;
    size_t at = 0;
    for (size_t v = 0; v < vocabulary; ++v) {
      double error = distance(got[r * vocabulary + v], want[r * vocabulary + v]);
      if (error > worst || std::isnan(error)) {
        worst = error;
        at = v;
      }
      if (std::isnan(error)) break;
    }
    auto tokens = static_cast<size_t>(batch.tokens);
    found.see(worst, tolerance, fmt::format("row {} token {} id {}", r / tokens, r % tokens, at));
  }
  return found;
}

GradComparison::GradComparison(const Golden& golden)
    : golden_(golden),
      abs_{"grad", "abs", 0, golden.grad_abs, "", {}},
      rel_{"grad", "rel", 0, golden.grad_rel, "", {}} {}

// The relative error is relative to the largest recorded magnitude in the tensor. A tensor that is
// recorded as all zeros has only an absolute error.
void GradComparison::see(const std::string& name, std::span<const float> got,
                         std::span<const float> want) {
  check_sizes("gradient of '" + name + "'", got.size(), want.size());
  double error = 0, largest = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    double here = distance(got[i], want[i]);
    error = std::isnan(here) || std::isnan(error) ? std::numeric_limits<double>::quiet_NaN()
                                                  : std::max(error, here);
    largest = std::max(largest, std::abs(double{want[i]}));
  }
  abs_.see(error, golden_.grad_abs, name);
  const std::vector<std::string>& zero = golden_.grad_zero;
  if (largest == 0 || contains(zero, name)) return;
  rel_.see(error / largest, golden_.grad_rel, name);
}

// A gradient norm that is recorded as 0 is compared by absolute error.
std::vector<Finding> compare_run(const GoldenRun& want, const RunNumbers& got) {
  check_sizes("run " + want.name, got.loss.size(), want.loss.size());
  check_sizes("run " + want.name, got.grad_norm.size(), want.grad_norm.size());
  Finding loss{want.name, "loss abs", 0, want.loss_abs, "", {}};
  Finding norm{want.name, "grad norm rel", 0, want.grad_norm_rel, "", {}};
  for (size_t i = 0; i < want.loss.size(); ++i) {
    std::string step = fmt::format("step {}", i + 1);
    loss.see(distance(got.loss[i], want.loss[i]), want.loss_abs, step);
    double scale = want.grad_norm[i] == 0 ? 1 : std::abs(want.grad_norm[i]);
    norm.see(distance(got.grad_norm[i], want.grad_norm[i]) / scale, want.grad_norm_rel, step);
  }
  if (want.final_loss)
    loss.see(distance(got.final_loss, *want.final_loss), want.loss_abs, "after the last step");
  return {loss, norm};
}

void ParamComparison::see(const GoldenParam& want, std::span<const float> values) {
  double sum = 0, squares = 0;
  for (double v : values) {
    sum += v;
    squares += v * v;
  }
  sum_.see(distance(sum, want.sum), want.sum_tol, want.name);
  l2_.see(distance(std::sqrt(squares), want.l2), want.l2_tol, want.name);
}

// After the first difference the texts continue differently, so only this difference is judged.
void compare_text(const GoldenText& want, size_t index, std::span<const int32_t> got,
                  double logits_abs, Finding& found) {
  check_sizes("a continuation", got.size(), want.tokens.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == want.tokens[i]) continue;
    std::string place = fmt::format("prompt {} token {}: {} instead of {}, margin {:.2g}", index, i,
                                    got[i], want.tokens[i], want.margin[i]);
    found.see(want.margin[i] > logits_abs ? 1 : 0, found.tolerance, place);
    return;
  }
  found.see(0, found.tolerance, fmt::format("prompt {}", index));
}

std::string findings_text(std::span<const Finding> findings) {
  std::string out = fmt::format("{:<13}{:<15}{:>10}{:>11}{:>9}  {}\n", "kind", "measure", "error",
                                "tolerance", "share", "worst at");
  for (const Finding& f : findings) {
    if (!f.compared()) continue;
    out += fmt::format("{:<13}{:<15}{:>10.2e}{:>11.2e}{:>9.2f}  {}\n", f.kind, f.measure, f.error,
                       f.tolerance, f.share(), f.where);
  }
  for (const Finding& f : findings) {
    for (const std::string& place : f.refused)
      out += fmt::format("not compared: {} {}\n", f.kind, place);
    if (f.passed()) continue;
    std::span<const std::string> named(f.beyond.data(), std::min(kNamed, f.beyond.size()));
    out += fmt::format("beyond tolerance: {} {}: {}", f.kind, f.measure, fmt::join(named, ", "));
    out +=
        f.beyond.size() > kNamed ? fmt::format(" and {} more\n", f.beyond.size() - kNamed) : "\n";
  }
  return out;
}

Json findings_json(std::span<const Finding> findings) {
  Json::Array out;
  for (const Finding& f : findings) {
    Json::Array beyond(f.beyond.begin(), f.beyond.end()),
        refused(f.refused.begin(), f.refused.end());
    out.push_back(Json::Object{{"kind", f.kind},
                               {"measure", f.measure},
                               {"error", f.error},
                               {"tolerance", f.tolerance},
                               {"where", f.where},
                               {"beyond", std::move(beyond)},
                               {"refused", std::move(refused)}});
  }
  return out;
}

}  // namespace ds
