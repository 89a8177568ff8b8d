#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ds {

struct DynamicBatchOptions {
  // The largest number of tokens in a group.
  int64_t max_tokens = 0;
  // Bounds of the number of documents in a group. If `most` is 0, there is no upper bound.
  int64_t least = 1, most = 0;
  // The order in which documents are used: "dataloader" (as they come), "random" or "seqlen"
  // (ascending).
  std::string order = "dataloader";
  // Used by the order "random".
  uint64_t seed = 0;
};

// Groups of as many documents as max_tokens allows, by DeepSpeed's rule (batch_by_seqlens in its
// variable_batch_size_and_lr.py). Documents are used in order, and a group ends before the document
// that would exceed max_tokens or `most`. The list ends where a group cannot reach `least`, and it
// never contains the last document. The list repeats without end: group g of repetition e has
// number e * groups() + g. A step uses consecutive groups of one repetition and skips the rest of a
// repetition that is too short for it.
class DynamicBatches {
 public:
  // `lengths` are the numbers of tokens of the documents. Documents longer than max_tokens are in
  // no group.
  DynamicBatches(std::span<const int64_t> lengths, const DynamicBatchOptions& options);

  int64_t groups() const { return static_cast<int64_t>(begins_.size()) - 1; }
  // Returns the number of the first group of a step of `count` groups, all of them numbered `next`
  // or higher.
  int64_t first_of_step(int64_t next, int64_t count) const;
  // Returns the documents of a group.
  std::span<const int64_t> group(int64_t number) const;
  // Returns the number of documents in `count` groups of one repetition.
  int64_t documents(int64_t first, int64_t count) const;
  // Returns the number of documents that are in no step, if each step has `count` groups.
  int64_t left_out(int64_t count) const;

 private:
  // Number of documents.
  int64_t all_ = 0;
  // Documents, group by group.
  std::vector<int64_t> order_;
  // Start of each group in order_, then the end of the last one.
  std::vector<size_t> begins_{0};
};

// Returns the factor for the learning rate of a step with `documents` documents, if the rate was
// chosen for steps of `base` documents. `method` is "linear", "sqrt" or "none".
double lr_factor(const std::string& method, int64_t documents, int64_t base);

}  // namespace ds
