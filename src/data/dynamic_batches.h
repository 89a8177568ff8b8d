#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ds {

struct DynamicBatchOptions {
  int64_t max_tokens = 0;       // of a group
  int64_t least = 1, most = 0;  // documents of a group; most 0: no bound
  std::string order =
      "dataloader";   // in which documents are taken: as they come; "random"; "seqlen": ascending
  uint64_t seed = 0;  // of "random"
};

// Groups of as many documents as their tokens allow, by DeepSpeed's rule (batch_by_seqlens in its
// variable_batch_size_and_lr.py): documents are taken in order, and a group ends before the one
// that would bring it above max_tokens or `most`. Where a group cannot reach `least`, the list
// ends; it never has the last document. The list repeats without end: group g of repetition e has
// number e * groups() + g. A step takes consecutive numbers of one repetition, and leaves out what
// is left of one where that is too little.
class DynamicBatches {
 public:
  // lengths: tokens of each document. Documents above max_tokens are in no group.
  DynamicBatches(std::span<const int64_t> lengths, const DynamicBatchOptions& options);

  int64_t groups() const { return static_cast<int64_t>(begins_.size()) - 1; }
  // Number of the first group of a step of `count` groups, none of which is below `next`.
  int64_t first_of_step(int64_t next, int64_t count) const;
  std::span<const int64_t> group(int64_t number) const;   // its documents
  int64_t documents(int64_t first, int64_t count) const;  // of groups of one repetition
  int64_t left_out(
      int64_t count) const;  // documents in no step of a run whose steps have `count` groups

 private:
  int64_t all_ = 0;                // documents
  std::vector<int64_t> order_;     // documents, group by group
  std::vector<size_t> begins_{0};  // of each group in order_, then the end
};

// What the learning rate of a step is multiplied by, which was chosen for `base` documents a step;
// method: "linear", "sqrt" or "none".
double lr_factor(const std::string& method, int64_t documents, int64_t base);

}  // namespace ds
