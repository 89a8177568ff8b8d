#pragma once
#include <string>

#include "core/config/key.h"

namespace ds {

// The choice of the value that inference computes.
struct InferKeys {
  // Output 1 of the graph ("output") or the loss of each row's target ("token_losses").
  std::string inferred = "output";
  bool token_losses() const { return inferred == "token_losses"; }
};

// Appends the key `inferred`.
void infer_keys(KeyList& keys);

}  // namespace ds
