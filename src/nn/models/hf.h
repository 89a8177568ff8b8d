#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/json.h"
#include "core/graph/graph.h"
#include "nn/models/hf_rows.h"

namespace ds {

// Whether a graph has the noise (dropout) that Transformers adds in training mode.
// from_pretrained() gives a model in evaluation mode.
enum class HfMode { evaluation, training };

// A model of Hugging Face Transformers as a forward graph in f32.
//
// Parameters have the names, shapes and element order of the model's safetensors file, a tied
// tensor once. Inputs, all i32[n], found by name: `tokens`; `targets` (causal: of the next token,
// shifted by the feeder; -100 is none); `token_types` (bert); `mask` (bert, opt, others when asked
// for: 1 is a token, 0 padding that no row sees); `positions` (opt: rows of the position table,
// position_offset - 1 + the number of unmasked tokens up to and including this one, and
// position_offset - 1 where mask is 0). Outputs: loss f32[] (mixtral with output_router_logits:
// cross entropy + router_aux_loss_coef * balance), logits f32[n, vocab]. Rows are packed sequences
// of `seq`; the last one may be shorter.
//
// With HfRows::documents rows are documents of at most `seq` tokens, one behind the other, which
// see nothing of each other. Then there is no mask, but `begin`, the first row of the document that
// a row is in, and `positions`, position_offset + the row - begin. Where batches are padded,
// mixtral's loss of routers has `counted`, 1 for the rows that it is of, in place of the mask.
struct HfModel {
  Graph graph;
  std::string family;  // model_type of config.json
  bool causal = true;  // false: a masked language model
  std::vector<std::pair<std::string, std::string>>
      tied;                         // (name without tensor, the parameter it is)
  int64_t position_offset = 0;      // see `positions`
  ValueId token_loss;               // where output 0 has more than the loss of tokens: that alone
  std::vector<std::string> unread;  // keys of config.json without effect, worth a warning
  // Of a folder with weights: config.json ties a head that is not tied; parameters that are not
  // stored.
  bool untied = false;
  std::vector<std::string> drawn;
};

// The model of a config.json of Transformers 4 or 5, for batches of n <= bound rows. Throws
// DS_ERROR_UNSUPPORTED for an architecture or option that libds does not have, naming key and
// value, and DS_ERROR_INVALID_ARGUMENT for values that contradict each other. In training mode the
// noise of routers is refused unless it is 0. A family that is not causal has no documents.
HfModel hf_model(const Json& config, int64_t bound, int64_t seq, HfMode mode = HfMode::evaluation,
                 HfBatch batch = {});

// The width of the residual stream. Errors as hf_model.
int64_t hf_hidden(const Json& config);

// The longest sequence of a model that has a table of positions; 0: it has none, as with rope.
// Errors as hf_model.
int64_t hf_positions(const Json& config);

}  // namespace ds
