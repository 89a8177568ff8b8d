#include "data/batch_rows.h"

#include <algorithm>
#include <numeric>

#include "core/base/error.h"
#include "data/masking.h"

namespace ds {

BatchRows BatchRows::part(size_t at, size_t count) const {
  auto of = [&](auto all) { return all.empty() ? all : all.subspan(at, count); };
  return {of(tokens), of(targets), of(begins), of(counted), of(reference)};
}

void pad(size_t at, size_t count, const BatchRows& to) {
  const BatchRows rows = to.part(at, count);
  std::ranges::fill(rows.tokens, 0);
  std::ranges::fill(rows.targets, kNoTarget);
  // Each token of padding is a document of its own, so no other token sees it.
  std::iota(rows.begins.begin(), rows.begins.end(), static_cast<int32_t>(at));
  std::ranges::fill(rows.counted, 0);
  std::ranges::fill(rows.reference, 0.0F);
}

void check_rows(const BatchRows& to, int64_t wanted) {
  const auto count = static_cast<size_t>(wanted);
  require(to.tokens.size() == count && to.targets.size() == count,
          "tokens and targets must hold {} elements each, got {} and {}", wanted, to.tokens.size(),
          to.targets.size());
  ensure((to.begins.empty() || to.begins.size() == count) &&
             (to.counted.empty() || to.counted.size() == count),
         "begins and counted must be empty or as long as the tokens, got {}, {} and {} elements",
         to.begins.size(), to.counted.size(), wanted);
}

}  // namespace ds
