#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nn/layers/layers.h"
#include "nn/models/hf.h"
#include "nn/models/hf_config.h"

namespace ds {

// Code that the families share: it reads the configuration, and begins and ends a graph.

// Returns the number of layers; throws if there are too many.
int64_t read_layers(const HfConfig& config, std::string_view key);
// Reads an activation by its name in Transformers, and returns its name for
// LayerBuilder::activation().
std::string read_activation(const HfConfig& config, std::string_view key);
// Returns the row of the token embedding that gets no gradient in Transformers, or -1 if there is
// no such row.
int64_t read_padding(const HfConfig& config, int64_t vocab);
// These functions return the attention window of each layer; 0 means no window. The layers with a
// window are those of layer_types if the family reads that key and the file has it; otherwise those
// with `sliding[layer]` or, in the second form, all `layers`. The second form uses sliding_window.
std::vector<int64_t> read_windows(const HfConfig& config, int64_t window,
                                  const std::vector<bool>& sliding);
std::vector<int64_t> read_windows(const HfConfig& config, int64_t layers);
// Returns the number of key and value heads, which must divide `heads`.
int64_t read_kv_heads(const HfConfig& config, int64_t heads);
// Returns the number of columns of a head: head_dim, or hidden / heads by default.
int64_t read_head_width(const HfConfig& config, int64_t hidden, int64_t heads);

// Throws unless `hidden` is a multiple of `heads`.
void check_heads(int64_t hidden, int64_t heads);

// Creates a model with its name, its bound, and the inputs tokens and targets. Adds the input mask
// if the family always has it (`masked`) or the caller requested it, or the inputs begin and
// positions for documents.
HfModel begin_model(const HfConfig& config, int64_t bound, bool masked = false);
// Returns the document inputs of the model's graph, for a LayerBuilder.
Documents documents_of(const HfModel& model);
// Returns the number of rows of the table of learned positions; throws if it is below `seq`.
int64_t read_positions(const HfConfig& config, int64_t seq);
// Adds an input i32[n] to the graph.
ValueId add_ids(HfModel& model, std::string_view name);
// Returns the logits: x times the transposed embedding if tie_word_embeddings is set, otherwise x
// times the transposed weight of a separate head.
ValueId add_head(HfModel& model, LayerBuilder& build, const HfConfig& config, ValueId x,
                 std::string_view head, const std::string& embedding, double stddev);
// Adds the cross entropy and the outputs, and records the keys that have no effect.
void end_model(HfModel& model, const HfConfig& config, ValueId logits, ValueId extra_loss = none);

}  // namespace ds
