// The losses that compare a chosen with a rejected text, and their gradient. Everything is computed
// in f64, since a sum over a long text is much larger than the difference of two of them.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/kernel.h"
#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// Returns -log sigmoid(z) without overflow.
double softplus_of_minus(double z) {
  return z > 0 ? std::log1p(std::exp(-z)) : std::log1p(std::exp(z)) - z;
}
double sigmoid(double z) { return z > 0 ? 1 / (1 + std::exp(-z)) : 1 - 1 / (1 + std::exp(z)); }

// The sums over the rows of a text that have a target.
struct Text {
  double loss = 0, reference = 0;
  double count = 0;

  double score() const { return reference - loss; }
  // The mean log-probability of a target; 0 without targets.
  double mean() const { return count > 0 ? -loss / count : 0; }
  double mean_score() const { return count > 0 ? score() / count : 0; }
};

// A loss, and its derivatives with respect to the score or to the mean of either text.
struct Judged {
  double loss, chosen, rejected;
};

class Preference {
 public:
  explicit Preference(const Attrs& attrs)
      : loss_(attrs.text_or("loss", "sigmoid")),
        beta_(attrs.real_or("beta", 0.1)),
        smoothing_(attrs.real_or("label_smoothing", 0)),
        margin_(attrs.real_or("margin", 0)),
        rows_(attrs.integer("rows")) {}

  int64_t rows() const { return rows_; }
  // Whether derivatives are those of means over the targets of a text, not of sums.
  bool by_means() const { return loss_ == "ipo" || loss_ == "odds" || loss_ == "simpo"; }
  double reward(const Text& text) const {
    return beta_ * (loss_ == "odds" || loss_ == "simpo" ? text.mean() : text.score());
  }

  Judged judge(const Text& chosen, const Text& rejected) const {
    if (loss_ == "ipo") {
      const double off = chosen.mean_score() - rejected.mean_score() - 1 / (2 * beta_);
      return {off * off, 2 * off, -2 * off};
    }
    if (loss_ == "odds") {
      const double c = chosen.mean(), r = rejected.mean(), z = log_odds(c) - log_odds(r);
      const double slope = -beta_ * sigmoid(-z);
      return {beta_ * softplus_of_minus(z), slope / -std::expm1(c), -slope / -std::expm1(r)};
    }
    const double z = loss_ == "simpo" ? beta_ * (chosen.mean() - rejected.mean()) - margin_
                                      : beta_ * (chosen.score() - rejected.score());
    if (loss_ == "hinge") return {z < 1 ? 1 - z : 0, z < 1 ? -beta_ : 0, z < 1 ? beta_ : 0};
    const double slope = beta_ * (smoothing_ * sigmoid(z) - (1 - smoothing_) * sigmoid(-z));
    return {(1 - smoothing_) * softplus_of_minus(z) + smoothing_ * softplus_of_minus(-z), slope,
            -slope};
  }

 private:
  // Returns the log of p / (1 - p) for a log-probability a = log p.
  static double log_odds(double a) { return a - std::log(-std::expm1(a)); }

  std::string_view loss_;
  double beta_, smoothing_, margin_;
  int64_t rows_;
};

// The operands of a preference_loss. A pair without targets and a text at the end that has no
// partner do not count.
template <typename T>
struct Pairs {
  const T *losses, *reference;
  const int32_t* targets;
  int64_t count, rows;

  Pairs(std::span<const TensorView> in, int64_t text_rows)
      : losses(in[0].as<T>()),
        reference(in.size() > 2 ? in[2].as<T>() : nullptr),
        targets(in[1].as<int32_t>()),
        count(in[0].dims[0] / (2 * text_rows)),
        rows(text_rows) {}

  // Returns 1 divided by the number of pairs that have a target, or 0 without any.
  double each() const {
    int64_t counted = 0;
    for (int64_t k = 0; k < count; ++k) counted += counts(k) ? 1 : 0;
    return counted > 0 ? 1 / static_cast<double>(counted) : 0;
  }
  bool counts(int64_t pair) const {
    const int32_t* first = targets + 2 * pair * rows;
    return std::any_of(first, first + 2 * rows, [](int32_t target) { return target >= 0; });
  }

  Text text(int64_t index) const {
    Text out;
    for (int64_t r = index * rows; r < (index + 1) * rows; ++r) {
      if (targets[r] < 0) continue;
      out.loss += static_cast<double>(losses[r]);
      if (reference != nullptr) out.reference += static_cast<double>(reference[r]);
      ++out.count;
    }
    return out;
  }
};

template <typename T>
void preference_loss(const KernelContext& c) {
  const Preference preference(c.attrs);
  const Pairs<T> pairs(c.in, preference.rows());
  double loss = 0, chosen = 0, rejected = 0, right = 0;
  for (int64_t k = 0; k < pairs.count; ++k) {
    if (!pairs.counts(k)) continue;
    const Text better = pairs.text(2 * k), worse = pairs.text(2 * k + 1);
    loss += preference.judge(better, worse).loss;
    chosen += preference.reward(better);
    rejected += preference.reward(worse);
    right += preference.reward(better) > preference.reward(worse) ? 1 : 0;
  }
  const double each = pairs.each();
  c.out[0].as<T>()[0] = static_cast<T>(loss * each);
  const double rewards[] = {chosen, rejected, right, chosen - rejected};
  for (int i = 0; i < 4; ++i) c.out[1].as<T>()[i] = static_cast<T>(rewards[i] * each);
}

// A score falls as a loss grows, and grows with the reference.
template <typename T>
void preference_loss_dx(const KernelContext& c) {
  const Preference preference(c.attrs);
  const Pairs<T> pairs(c.in.subspan(1), preference.rows());
  for (const TensorView& out : c.out) std::fill_n(out.as<T>(), out.numel(), T{0});
  const double each = static_cast<double>(c.in[0].as<T>()[0]) * pairs.each();
  for (int64_t k = 0; k < pairs.count; ++k) {
    if (!pairs.counts(k)) continue;
    const Text texts[] = {pairs.text(2 * k), pairs.text(2 * k + 1)};
    const Judged judged = preference.judge(texts[0], texts[1]);
    for (int64_t side = 0; side < 2; ++side) {
      double slope = each * (side == 0 ? judged.chosen : judged.rejected);
      if (preference.by_means()) slope /= texts[side].count;
      for (int64_t r = (2 * k + side) * pairs.rows; r < (2 * k + side + 1) * pairs.rows; ++r) {
        if (pairs.targets[r] < 0) continue;
        c.out[0].as<T>()[r] = static_cast<T>(-slope);
        if (c.out.size() > 1) c.out[1].as<T>()[r] = static_cast<T>(slope);
      }
    }
  }
}

// Calls `run` for losses in f32 or f64, the only types that shape rules admit.
template <typename Run>
void by_wide_type(const KernelContext& c, size_t losses, const Run& run) {
  c.in[losses].dtype == DS_DTYPE_F64 ? run(double{}) : run(float{});
}

}  // namespace

void add_preference(KernelRegistry& registry) {
  add_kernel(registry, "preference_loss", [](const KernelContext& c) {
    by_wide_type(c, 0, [&](auto t) { preference_loss<decltype(t)>(c); });
  });
  add_kernel(registry, "preference_loss_dx", [](const KernelContext& c) {
    by_wide_type(c, 1, [&](auto t) { preference_loss_dx<decltype(t)>(c); });
  });
}

}  // namespace ds::ref
