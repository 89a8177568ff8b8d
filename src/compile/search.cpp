#include "compile/search.h"

#include <algorithm>

namespace ds {

// The choices give up, in this order, late reuse of memory, prefetch, storing cheap activations,
// and storing any activations inside a layer. If the configuration requests recomputation, its kind
// does not change.
std::vector<Choices> choices_by_memory(const Config& config) {
  const bool overlap = config.zero.overlap_comm, reuse = overlap && config.separate_tiers();
  Choices next{overlap, reuse, config.recompute, config.recompute_num_layers};
  std::vector<Choices> out{next};
  next.late_reuse = false;
  if (reuse) out.push_back(next);
  next.prefetch = false;
  if (overlap) out.push_back(next);
  if (config.recompute != "none") return out;
  next.recompute = "cheap";
  out.push_back(next);
  next.recompute = "layers";
  next.recompute_layers = 1;
  out.push_back(next);
  return out;
}

size_t search(const std::vector<Choices>& candidates, size_t first,
              const std::function<bool(const Choices&)>& compile) {
  // If another rank's configuration has more candidates, `first` may be too large. The comparison
  // of plans then reports the key that differs.
  first = std::min(first, candidates.size() - 1);
  while (!compile(candidates[first]) && first + 1 < candidates.size()) ++first;
  return first;
}

std::vector<std::string> notes_of(const Choices& chosen, const Choices& wanted) {
  std::vector<std::string> notes;
  if (wanted.prefetch && !chosen.prefetch) {
    notes.emplace_back("prefetch is off to fit memory_budget");
  } else if (wanted.late_reuse && !chosen.late_reuse) {
    notes.emplace_back(
        "freed memory is reused at once to fit memory_budget, so transfers wait for earlier ones");
  }
  if (chosen.recompute == wanted.recompute) return notes;
  notes.emplace_back(chosen.recompute == "cheap"
                         ? "cheap activations are computed again to fit memory_budget"
                         : "the activations of each layer are computed again to fit memory_budget");
  return notes;
}

}  // namespace ds
