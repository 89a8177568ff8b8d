#pragma once
#include <cstdint>
#include <string>

#include "nn/models/hf.h"

namespace ds {

// The loss of a model that is trained on pairs of a chosen and a rejected text.
struct PairLoss {
  // A loss of the operation preference_loss, with its attributes.
  std::string loss = "sigmoid";
  double beta = 0.1, label_smoothing = 0, margin = 0;
  // The weight of the mean loss of the chosen texts, which is added; over all their tokens or only
  // over those of the completions.
  double nll = 0;
  bool nll_of_all = false;
  // Whether the loss reads the losses of a reference.
  bool referred = true;
};

// Names of the inputs of such a model: the reference's losses, f32[n], and the targets whose mean
// loss is added, i32[n]: all tokens, or the completions, of the chosen texts.
inline constexpr const char *kReferenceInput = "reference", *kChosenTokens = "chosen_tokens",
                            *kChosenTargets = "chosen_targets";

// Makes a causal model one that is trained on pairs. Its rows are texts of `sequence` rows, the
// chosen and the rejected text of each pair in turn. The preference takes the place of the
// cross-entropy in the loss, so a term that is added to that, such as the routers' loss of Mixtral,
// stays. The rewards become the last output. Throws DS_ERROR_UNSUPPORTED for a model that predicts
// masked tokens.
void prefer_pairs(HfModel& model, const PairLoss& loss, int64_t sequence);

}  // namespace ds
