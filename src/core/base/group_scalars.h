#pragma once

namespace ds {

// What updates of the parameters of one group read (optimizer.param_groups), of the step's own.
struct GroupScalars {
  double lr = 0, weight_decay = 0;
  double beta1 = 0, beta2 = 0, eps = 0;  // Adam, AdamW
  double momentum = 0;                   // SGD, Muon
  double rate_sum = 0;  // 0/1 Adam: lr of this step and of those since ranks last agreed
  double adam_lr = 0;   // of parameters that Muon leaves to AdamW; `lr` is that of matrices
  bool operator==(const GroupScalars&) const = default;
};

}  // namespace ds
