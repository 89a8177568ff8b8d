// DeepSpeed's rule, including its quirks: the last document is never used, and the list ends at the
// first group that is too small.
#include "data/dynamic_batches.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/error.h"
#include "data/permutation.h"

namespace ds {
namespace {

// Returns the documents that fit a group, in the order of options.order.
std::vector<int64_t> ordered(std::span<const int64_t> lengths, const DynamicBatchOptions& options) {
  std::vector<int64_t> all(lengths.size());
  std::iota(all.begin(), all.end(), 0);
  if (options.order == "random") {
    auto count = static_cast<int64_t>(all.size());
    for (int64_t i = 0; i < count; ++i)
      all[static_cast<size_t>(i)] = permute(options.seed, 0, i, count);
  }
  if (options.order == "seqlen") {
    std::ranges::stable_sort(all, [&](int64_t a, int64_t b) {
      return lengths[static_cast<size_t>(a)] < lengths[static_cast<size_t>(b)];
    });
  }
  std::erase_if(all,
                [&](int64_t i) { return lengths[static_cast<size_t>(i)] > options.max_tokens; });
  return all;
}

}  // namespace

DynamicBatches::DynamicBatches(std::span<const int64_t> lengths, const DynamicBatchOptions& options)
    : all_(static_cast<int64_t>(lengths.size())), order_(ordered(lengths, options)) {
  // The last document is in no group.
  const size_t last = order_.empty() ? 0 : order_.size() - 1;
  auto most =
      static_cast<size_t>(options.most == 0 ? static_cast<int64_t>(order_.size()) : options.most);
  while (begins_.back() < last) {
    size_t end = begins_.back();
    for (int64_t tokens = 0; end < last && end - begins_.back() < most; ++end) {
      tokens += lengths[static_cast<size_t>(order_[end])];
      if (tokens > options.max_tokens) break;
    }
    if (end - begins_.back() < static_cast<size_t>(std::max<int64_t>(options.least, 1))) break;
    begins_.push_back(end);
  }
  order_.resize(begins_.back());
}

int64_t DynamicBatches::first_of_step(int64_t next, int64_t count) const {
  require(count >= 1 && count <= groups(), "groups of a step must be from 1 to {}, got {}",
          groups(), count);
  const int64_t left = groups() - next % groups();
  // A step never spans two repetitions.
  return left < count ? next + left : next;
}

std::span<const int64_t> DynamicBatches::group(int64_t number) const {
  auto at = static_cast<size_t>(number % groups());
  return std::span(order_).subspan(begins_[at], begins_[at + 1] - begins_[at]);
}

int64_t DynamicBatches::documents(int64_t first, int64_t count) const {
  auto at = static_cast<size_t>(first % groups());
  return static_cast<int64_t>(begins_[at + static_cast<size_t>(count)] - begins_[at]);
}

// Counts the documents that are in no group and those of groups beyond the last whole step.
int64_t DynamicBatches::left_out(int64_t count) const {
  const int64_t whole = groups() - groups() % count;
  return all_ - static_cast<int64_t>(begins_[static_cast<size_t>(whole)]);
}

double lr_factor(const std::string& method, int64_t documents, int64_t base) {
  double share = static_cast<double>(documents) / static_cast<double>(base);
  return method == "linear" ? share : method == "sqrt" ? std::sqrt(share) : 1;
}

}  // namespace ds
