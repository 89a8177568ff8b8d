#include "data/dynamic_batches.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/error.h"
#include "data/permutation.h"

namespace ds {
namespace {

std::vector<int64_t> ordered(std::span<const int64_t> lengths, const DynamicBatchOptions& options) {
  std::vector<int64_t> all(lengths.size());
  std::iota(all.begin(), all.end(), 0);
  if (options.order == "random") {
    auto count = static_cast<int64_t>(all.size());
    for (int64_t i = 0; i < count; ++i) all[static_cast<size_t>(i)] = permute(options.seed, 0, i, count);
  }
  if (options.order == "seqlen") {
    std::stable_sort(all.begin(), all.end(), [&](int64_t a, int64_t b) {
      return lengths[static_cast<size_t>(a)] < lengths[static_cast<size_t>(b)];
    });
  }
  std::erase_if(all, [&](int64_t i) { return lengths[static_cast<size_t>(i)] > options.max_tokens; });
  return all;
}

}  // namespace

DynamicBatches::DynamicBatches(std::span<const int64_t> lengths, const DynamicBatchOptions& options)
    : groups_(options.groups), order_(ordered(lengths, options)) {
  require(groups_ >= 1, "groups must be at least 1, got {}", groups_);
  const size_t last = order_.empty() ? 0 : order_.size() - 1;  // the last document is in no group
  auto most = static_cast<size_t>(options.most == 0 ? static_cast<int64_t>(order_.size()) : options.most);
  while (begins_.back() < last) {
    size_t end = begins_.back();
    for (int64_t tokens = 0; end < last && end - begins_.back() < most; ++end) {
      tokens += lengths[static_cast<size_t>(order_[end])];
      if (tokens > options.max_tokens) break;
    }
    if (end - begins_.back() < static_cast<size_t>(std::max<int64_t>(options.least, 1))) break;
    begins_.push_back(end);
  }
  while ((begins_.size() - 1) % static_cast<size_t>(groups_) != 0) begins_.pop_back();
  order_.resize(begins_.back());
  left_out_ = static_cast<int64_t>(lengths.size() - order_.size());
}

std::span<const int64_t> DynamicBatches::group(int64_t batch, int64_t group) const {
  auto at = static_cast<size_t>(batch * groups_ + group);
  return std::span(order_).subspan(begins_[at], begins_[at + 1] - begins_[at]);
}

int64_t DynamicBatches::documents(int64_t batch) const {
  auto first = static_cast<size_t>(batch * groups_);
  return static_cast<int64_t>(begins_[first + static_cast<size_t>(groups_)] - begins_[first]);
}

double lr_factor(const std::string& method, int64_t documents, int64_t base) {
  double share = static_cast<double>(documents) / static_cast<double>(base);
  return method == "linear" ? share : method == "sqrt" ? std::sqrt(share) : 1;
}

}  // namespace ds
