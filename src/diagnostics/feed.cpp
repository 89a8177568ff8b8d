#include "diagnostics/feed.h"

#include <algorithm>

#include "core/base/contains.h"
#include "core/base/error.h"

namespace ds {
namespace {

constexpr int32_t kNoTarget = -100;

// Throws if the batch needs an input that the model's graph does not have, because the recorded
// numbers then cannot be reproduced.
void refuse_missing_inputs(const HfModel& model, const GoldenBatch& batch) {
  const Graph& g = model.graph;
  auto absent = [&](const char* name) { return !contains(g.inputs, g.find_value(name)); };
  if (absent("mask") && batch.hides_tokens()) {
    raise(DS_ERROR_UNSUPPORTED,
          "attention_mask hides tokens, but the '{}' model was built without a mask", model.family);
  }
  bool typed = std::ranges::any_of(batch.kinds, [](int32_t k) { return k != 0; });
  if (absent("token_types") && typed) {
    raise(DS_ERROR_UNSUPPORTED, "token_type_ids are given, but family '{}' has no input for them",
          model.family);
  }
}

void append(std::vector<int32_t>& all, const std::vector<int32_t>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

// Returns one batch with the rows of all batches, in which mask and kinds are never empty.
GoldenBatch joined(const std::vector<const GoldenBatch*>& batches) {
  GoldenBatch all;
  for (const GoldenBatch* batch : batches) {
    all.rows += batch->rows;
    all.tokens = batch->tokens;
    append(all.ids, batch->ids);
    append(all.labels, batch->labels);
    append(all.mask, batch->mask);
    append(all.kinds, batch->kinds);
    all.mask.resize(all.ids.size(), 1);
    all.kinds.resize(all.ids.size(), 0);
  }
  return all;
}

// Shifts labels as the graph expects them: the logits of a causal model at t predict the label at t
// + 1.
void shift_labels(GoldenBatch& batch) {
  for (int64_t i = 0; i < batch.rows * batch.tokens; ++i) {
    auto at = static_cast<size_t>(i);
    batch.labels[at] = (i + 1) % batch.tokens != 0 ? batch.labels[at + 1] : kNoTarget;
  }
}

// Returns one batch with all rows, whose mask and kinds are complete, and whose labels are shifted
// if the model is causal. Throws if the model lacks an input.
GoldenBatch checked(const HfModel& model, const std::vector<const GoldenBatch*>& batches) {
  for (const GoldenBatch* batch : batches) refuse_missing_inputs(model, *batch);
  GoldenBatch all = joined(batches);
  if (model.causal) shift_labels(all);
  return all;
}

}  // namespace

Feed::Feed(const HfModel& model, const std::vector<const GoldenBatch*>& batches)
    : tokens_(checked(model, batches)),
      inputs_(model, tokens_.rows * tokens_.tokens, tokens_.tokens, tokens_.mask, tokens_.kinds) {}

}  // namespace ds
