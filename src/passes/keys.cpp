#include "passes/keys.h"

#include "core/config/config.h"

namespace ds {

void infer_keys(KeyList& keys) {
  KeyRows rows(keys, "", of_section<InferKeys>);
  rows.words("inferred", &InferKeys::inferred, {"output", "token_losses"},
             "what `ds_infer` computes: `output` is output 1 of the graph; `token_losses` is the "
             "loss of each target, f32[n]: -log p of the row's target, and 0 in a row without one. "
             "It needs a loss that is made by one `cross_entropy`, whose `label_smoothing` and "
             "`z_loss` do not count here. With a fused head, no logits are stored for it");
}

}  // namespace ds
