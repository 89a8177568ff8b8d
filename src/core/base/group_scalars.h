#pragma once

namespace ds {

// The scalars that the update of one parameter group reads in one step (optimizer.param_groups).
struct GroupScalars {
  double lr = 0, weight_decay = 0;
  // Read by the optimizers that have them, such as Adam and AdamW.
  double beta1 = 0, beta2 = 0, eps = 0;
  // Read by SGD and Muon.
  double momentum = 0;
  // For 0/1 Adam: the sum of lr over this step and all steps since the ranks last agreed.
  double rate_sum = 0;
  // The rate for the parameters that Muon leaves to AdamW; `lr` is the rate for matrices.
  double adam_lr = 0;
  bool operator==(const GroupScalars&) const = default;
};

}  // namespace ds
