#pragma once
#include <cstdint>
#include <string>

#include "core/config/config.h"
#include "core/config/key.h"

namespace ds {

// Section data_efficiency.data_sampling.dynamic_batching: micro-batches of as many documents as
// their tokens allow.
struct DynamicBatchingKeys {
  // Whether dynamic batching is enabled in its section and, after complete_data_efficiency(), in
  // both sections around it as well.
  bool enabled = false;
  // data_efficiency.enabled and data_efficiency.data_sampling.enabled.
  bool outer = false, sampling = false;
  // Whether dynamic batching is enabled in its section, whatever the sections around it say.
  bool given = false;
  // The largest number of tokens in a group of documents. A micro-batch consists of micro_batch
  // groups.
  int64_t max_tokens = 0;
  // lr_scaling_method: "linear", "sqrt" or "none".
  std::string lr_scaling = "linear";
  // The bounds of the number of documents in a group. If max_batch is 0, there is no upper bound.
  int64_t min_batch = 1, max_batch = 0;
  // sequence_picking_order: "dataloader", "random" or "seqlen".
  std::string order = "dataloader";
  // data_efficiency.seed, for the order "random".
  uint64_t seed = 1234;
};

// Appends the keys of data_efficiency that libds acts on, those of dynamic batching.
void data_efficiency_keys(KeyList& keys);
// Turns dynamic batching off, with a warning, unless both sections around it are enabled. Throws
// DS_ERROR_CONFIG if dynamic batching contradicts other keys.
void complete_data_efficiency(Config& config);

// Sets model.documents if rows hold several documents, or if a curriculum shortens several samples
// of a micro-batch. Throws DS_ERROR_CONFIG if the model cannot distinguish the documents.
void complete_documents(Config& config);
// Returns the largest number of rows in a micro-batch.
int64_t batch_rows(const Config& config);

}  // namespace ds
