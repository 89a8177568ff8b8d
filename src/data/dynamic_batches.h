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
      "dataloader";    // in which documents are taken: as they come; "random"; "seqlen": ascending
  uint64_t seed = 0;   // of "random"
  int64_t groups = 1;  // of a step
};

// Steps of as many documents as their tokens allow, by DeepSpeed's rule (batch_by_seqlens in its
// variable_batch_size_and_lr.py): documents are taken in order, and a group ends before the one that would
// bring it above max_tokens or `most`. Where a group cannot reach `least`, the list ends; it never has the
// last document; and groups that make no whole step are left out. Step k has batch k modulo batches().
class DynamicBatches {
 public:
  // lengths: tokens of each document. Documents above max_tokens are in no group.
  DynamicBatches(std::span<const int64_t> lengths, const DynamicBatchOptions& options);

  int64_t batches() const { return static_cast<int64_t>(begins_.size() - 1) / groups_; }
  std::span<const int64_t> group(int64_t batch, int64_t group) const;  // its documents
  int64_t documents(int64_t batch) const;                              // of all its groups
  int64_t left_out() const { return left_out_; }                       // documents in no group

 private:
  int64_t groups_, left_out_ = 0;
  std::vector<int64_t> order_;     // documents, group by group
  std::vector<size_t> begins_{0};  // of each group in order_, then the end
};

// What the learning rate of a step is multiplied by, which was chosen for `base` documents a step; method:
// "linear", "sqrt" or "none".
double lr_factor(const std::string& method, int64_t documents, int64_t base);

}  // namespace ds
