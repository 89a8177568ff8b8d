#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/json.h"
#include "core/graph/graph.h"
#include "nn/models/hf_rows.h"

namespace ds {

// The mode of a graph. Only in training does it have the noise (dropout) that Transformers adds.
// from_pretrained() returns models in evaluation mode.
enum class HfMode { evaluation, training };

// A model of Hugging Face Transformers as a forward graph in f32.
//
// Parameters have the names, shapes and element order of the model's safetensors file; a tied
// tensor is one parameter. All inputs are i32[n] and are found by name:
// - `tokens`;
// - `targets`: for causal models the next token, shifted by the caller; -100 is ignored;
// - `token_types`: bert;
// - `mask`: bert, opt, and other families on request. 1 is a token, 0 is padding, to which no row
//   attends;
// - `positions`: opt. Rows of the position table: position_offset - 1 + the number of unmasked
//   tokens up to and including this one, and position_offset - 1 where mask is 0.
//
// The outputs are loss f32[] (for mixtral with output_router_logits: cross entropy +
// router_aux_loss_coef * balance) and logits f32[n, vocab]. Rows are concatenated sequences of
// `seq` tokens; the last one may be shorter.
//
// With HfRows::documents, the rows are documents of at most `seq` tokens, one after another, which
// do not attend to each other. In place of `mask` there are then `begin`, the index of the first
// row of a row's document, and `positions`, which is position_offset + the index of the row -
// begin. If batches are padded, mixtral's router loss reads `counted`, which is 1 for the rows that
// count, in place of the mask.
struct HfModel {
  Graph graph;
  // The model_type of config.json.
  std::string family;
  // Whether the model predicts the next token; false for a masked language model.
  bool causal = true;
  // Pairs of a tensor name that is not stored and the name of the parameter that it is tied to.
  std::vector<std::pair<std::string, std::string>> tied;
  // Offset of the values of the input `positions` (see above).
  int64_t position_offset = 0;
  // The loss of the tokens alone, if output 0 includes more than that.
  ValueId token_loss;
  // Keys of config.json that have no effect and should be named in a warning.
  std::vector<std::string> unread;
  // For a folder with weights: whether config.json ties a head to the embedding although the stored
  // tensors differ, and the names of the parameters that are not stored.
  bool untied = false;
  std::vector<std::string> drawn;
};

// Builds the model of a config.json of Transformers 4 or 5, for batches of n <= bound rows. Throws
// DS_ERROR_UNSUPPORTED for an architecture or option that libds lacks, naming key and value, and
// DS_ERROR_INVALID_ARGUMENT for values that contradict each other. In training mode, router noise
// is refused unless it is 0. Only causal families support documents.
HfModel hf_model(const Json& config, int64_t bound, int64_t seq, HfMode mode = HfMode::evaluation,
                 HfBatch batch = {});

// Returns the width of the residual stream. Errors are those of hf_model().
int64_t hf_hidden(const Json& config);

// Returns the longest sequence that the table of positions allows, or 0 if the model has no such
// table, as with rope. Errors are those of hf_model().
int64_t hf_positions(const Json& config);

}  // namespace ds
