#pragma once
#include <cstdint>

#include "core/config/config.h"
#include "core/config/document.h"
#include "core/config/key.h"

namespace ds {

// The sections that every engine has. A function NAME_keys appends the rows of a section;
// complete_NAME and check_NAME refuse contradictions, and complete_NAME also fills in values that
// follow from other keys.

// The largest number of micro-steps in a step.
inline constexpr int64_t kMostAccumulation = 65536;

// Appends the keys of batches and of clipping.
void batch_keys(KeyList& keys);
// Appends the keys of the communicator, the device and the reduction of gradients.
void exchange_keys(KeyList& keys);
// Appends the other keys of the top level and of its small sections.
void engine_keys(KeyList& keys);

void complete_clipping(Config& config, const ConfigDocument& document);
void check_leaves(Config& config, int world);
void check_activations(Config& config, const ConfigDocument& document);
void complete_reduction(Config& config);

// Appends the keys of floating types, loss scales and autocast.
void precision_keys(KeyList& keys);

// Completes and checks train_batch, micro_batch and accumulation. A value that was not given is 0.
void complete_batch(Config& config, int world);
void complete_precision(Config& config);

}  // namespace ds
