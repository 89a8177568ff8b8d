// Computes the frequencies of rotary position embeddings under each scaling (Su et al., "RoFormer",
// arXiv:2104.09864). The plain frequency of pair i is theta^(-2 i / dims). Scalings for longer
// texts divide it by a factor, for all pairs alike (linear) or only for those that turn slowly
// (llama3; Peng et al., "YaRN", arXiv:2309.00071), change theta with the length (dynamic), or list
// a factor for each pair (longrope; Ding et al., arXiv:2402.13753).
#include "kernels/formulas/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>

namespace ds {

Rope::Rope(const Attrs& attrs, int64_t columns, int64_t length)
    : heads(attrs.integer("heads")),
      depth(columns / heads),
      dims(attrs.integer_or("dims", 0)),
      period(attrs.integer_or("period", heads)),
      rotated(attrs.integer_or("rotated", period)),
      seq(attrs.integer("seq")),
      interleaved(attrs.integer_or("interleaved", 0) != 0),
      magnitude(1),
      theta_(attrs.real("theta")),
      sign_(attrs.integer_or("inverse", 0) != 0 ? -1 : 1),
      factor_(attrs.real_or("factor", 1)),
      low_(attrs.real_or("low", 0)),
      high_(attrs.real_or("high", 0)),
      original_(attrs.real_or("original", 0)),
      truncate_(attrs.integer_or("truncate", 1) != 0) {
  if (dims == 0) dims = depth;
  std::string_view scaling = attrs.text_or("scaling", "none");
  scaling_ = scaling == "yarn"       ? Scaling::yarn
             : scaling == "longrope" ? Scaling::longrope
             : scaling == "llama3"   ? Scaling::llama3
             : scaling == "dynamic"  ? Scaling::dynamic
             : scaling == "linear"   ? Scaling::linear
                                     : Scaling::none;
  resolve(attrs, length > 0 ? length : seq);
  double given = attrs.real_or("magnitude", 0);
  if (given > 0) {
    magnitude = given;
  } else if (scaling_ == Scaling::yarn && factor_ > 1) {
    magnitude = 1 + 0.1 * std::log(factor_);
  }
}

void Rope::resolve(const Attrs& attrs, int64_t length) {
  if (scaling_ == Scaling::longrope) {
    bool beyond = attrs.has("long_factors") && length > attrs.integer("original");
    read_rope_factors(attrs, beyond ? "long_factors" : "factors", factors_);
  } else if (scaling_ == Scaling::dynamic) {
    double stretch = std::max(static_cast<double>(length), original_) / original_;
    // Apart from theta, "dynamic" equals "none".
    theta_ *= std::pow(factor_ * stretch - (factor_ - 1), attrs.real("power"));
  }
}

double Rope::kept(double plain, int64_t pair) const {
  if (scaling_ == Scaling::linear) return 0;
  if (scaling_ == Scaling::llama3) {
    return std::clamp((original_ * plain / (2 * std::numbers::pi) - low_) / (high_ - low_), 0.0,
                      1.0);
  }
  // Returns the (fractional) index of the pair that turns `turns` times within the original length.
  auto pair_of = [&](double turns) {
    return static_cast<double>(dims) * std::log(original_ / (2 * std::numbers::pi * turns)) /
           (2 * std::log(theta_));
  };
  double from = pair_of(high_), to = pair_of(low_);
  double first = std::max(truncate_ ? std::floor(from) : from, 0.0);
  double last = std::min(truncate_ ? std::ceil(to) : to, static_cast<double>(dims - 1));
  // The span is negative if the original length is so short that every pair turns less than `low`
  // times. Then all frequencies are kept.
  double span = last == first ? 0.001 : last - first;
  return 1 - std::clamp((static_cast<double>(pair) - first) / span, 0.0, 1.0);
}

double Rope::frequency(int64_t pair) const {
  double plain = std::pow(theta_, -2.0 * static_cast<double>(pair) / static_cast<double>(dims));
  if (scaling_ == Scaling::none || scaling_ == Scaling::dynamic) return sign_ * plain;
  if (scaling_ == Scaling::longrope) return sign_ * plain / factors_[static_cast<size_t>(pair)];
  double s = kept(plain, pair);
  return sign_ * plain * ((1 - s) / factor_ + s);
}

}  // namespace ds
