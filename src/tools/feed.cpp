#include "tools/feed.h"

#include <algorithm>

#include "core/base/error.h"

namespace ds {
namespace {

constexpr int32_t kNoTarget = -100;

// Labels as the graph takes them: a causal model's logits at t predict the label at t + 1.
std::vector<int32_t> targets_of(const GoldenBatch& batch, bool causal) {
  if (!causal) return batch.labels;
  std::vector<int32_t> out(batch.labels.size(), kNoTarget);
  for (int64_t i = 0; i < batch.rows * batch.tokens; ++i) {
    if ((i + 1) % batch.tokens != 0) out[static_cast<size_t>(i)] = batch.labels[static_cast<size_t>(i) + 1];
  }
  return out;
}

std::vector<int32_t> mask_of(const GoldenBatch& batch) {
  return batch.mask.empty() ? std::vector<int32_t>(batch.ids.size(), 1) : batch.mask;
}

// Rows of a position table that counts the unmasked tokens of a sequence.
std::vector<int32_t> positions_of(const GoldenBatch& batch, int64_t offset) {
  std::vector<int32_t> mask = mask_of(batch), out(mask.size());
  int64_t seen = 0;
  for (size_t i = 0; i < mask.size(); ++i) {
    if (static_cast<int64_t>(i) % batch.tokens == 0) seen = 0;
    seen += mask[i];
    out[i] = static_cast<int32_t>(offset - 1 + (mask[i] ? seen : 0));
  }
  return out;
}

std::vector<int32_t> kinds_of(const GoldenBatch& batch) {
  return batch.kinds.empty() ? std::vector<int32_t>(batch.ids.size(), 0) : batch.kinds;
}

std::vector<int32_t> values_of(const HfModel& model, const std::string& input, const GoldenBatch& batch) {
  if (input == "tokens") return batch.ids;
  if (input == "targets") return targets_of(batch, model.causal);
  if (input == "mask") return mask_of(batch);
  if (input == "positions") return positions_of(batch, model.position_offset);
  if (input == "token_types") return kinds_of(batch);
  raise(DS_ERROR_UNSUPPORTED, "the model's input '{}' is not among the recorded numbers", input);
}

}  // namespace

Feed::Feed(const HfModel& model, const std::vector<const GoldenBatch*>& batches) {
  const Graph& g = model.graph;
  auto absent = [&](const char* name) {
    ValueId value = g.find_value(name);
    return std::find(g.inputs.begin(), g.inputs.end(), value) == g.inputs.end();
  };
  for (const GoldenBatch* batch : batches) {
    if (absent("mask") && batch->hides_tokens()) {
      raise(DS_ERROR_UNSUPPORTED, "attention_mask hides tokens, the '{}' model was built without a mask",
            model.family);
    }
    bool typed = std::any_of(batch->kinds.begin(), batch->kinds.end(), [](int32_t k) { return k != 0; });
    if (absent("token_types") && typed) {
      raise(DS_ERROR_UNSUPPORTED, "token_type_ids are given, family '{}' takes none", model.family);
    }
  }
  for (ValueId input : g.inputs) {
    std::vector<int32_t> all;
    for (const GoldenBatch* batch : batches) {
      std::vector<int32_t> one = values_of(model, g.values[input].name, *batch);
      all.insert(all.end(), one.begin(), one.end());
    }
    inputs_.push_back(std::move(all));
  }
}

std::vector<InputView> Feed::views() const {
  std::vector<InputView> out;
  for (const std::vector<int32_t>& input : inputs_) {
    out.push_back({input.data(), DS_DTYPE_I32, static_cast<int64_t>(input.size())});
  }
  return out;
}

}  // namespace ds
