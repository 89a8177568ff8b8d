#pragma once
#include <cstdint>
#include <string>

#include "core/config/config.h"
#include "core/config/key.h"

namespace ds {

// The section `preference` of the configuration: training on pairs of a chosen and a rejected
// answer. The keys and their values have the names of TRL.
struct PreferenceKeys {
  // "sigmoid", "hinge", "ipo", "orpo" or "simpo"; "" without preference training.
  std::string loss_type;
  double beta = 0.1, label_smoothing = 0, simpo_gamma = 0.5;
  // The weight of the mean loss of the chosen completions, which is added to "simpo".
  double cpo_alpha = 0;
  bool disable_dropout = true;
  std::string truncation_mode = "keep_start";
  // A file of the reference's losses that another run has computed; "" computes them.
  std::string reference;

  bool on() const { return !loss_type.empty(); }
  // Returns whether the loss compares the model with a reference.
  bool referred() const {
    return loss_type == "sigmoid" || loss_type == "hinge" || loss_type == "ipo";
  }
  // Returns the number of texts in a sample: the two of a pair, or one.
  int64_t texts() const { return on() ? 2 : 1; }
};

// Appends the keys of `preference`.
void preference_keys(KeyList& keys);

// Sets the loss if the document has the section.
void complete_preference(Config& config);
// Throws DS_ERROR_CONFIG if keys of preference contradict each other or other sections.
void check_preference(const Config& config);

}  // namespace ds
