#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nn/layers/layers.h"
#include "nn/models/hf.h"
#include "nn/models/hf_config.h"

namespace ds {

// What the families share in reading a configuration and in beginning and ending a graph.

int64_t read_layers(const HfConfig& config, std::string_view key);
// An activation by its name in Transformers, as LayerBuilder::activation names it.
std::string read_activation(const HfConfig& config, std::string_view key);
// The row of the token embedding that Transformers gives no gradient, -1: none.
int64_t read_padding(const HfConfig& config, int64_t vocab);
// Attention windows by layer, 0 is none: from layer_types where the family reads it and the file
// has it, else `window` where `sliding[layer]`, or sliding_window in all `layers`.
std::vector<int64_t> read_windows(const HfConfig& config, int64_t window,
                                  const std::vector<bool>& sliding);
std::vector<int64_t> read_windows(const HfConfig& config, int64_t layers);
// Heads that share keys: divides `heads`.
int64_t read_kv_heads(const HfConfig& config, int64_t heads);
int64_t read_head_width(const HfConfig& config, int64_t hidden, int64_t heads);

// hidden is a multiple of heads.
void check_heads(int64_t hidden, int64_t heads);

// Inputs tokens and targets, name and bound; input mask where the family always has one (`masked`),
// or the caller asked for it; with documents, begin and positions instead.
HfModel begin_model(const HfConfig& config, int64_t bound, bool masked = false);
// What a builder of the model's layers must know.
Documents documents_of(const HfModel& model);
// Rows of the table of learned positions, at least seq.
int64_t read_positions(const HfConfig& config, int64_t seq);
ValueId add_ids(HfModel& model, std::string_view name);  // an input i32[n]
// x times the embedding when tie_word_embeddings, else times a head of its own.
ValueId add_head(HfModel& model, LayerBuilder& build, const HfConfig& config, ValueId x,
                 std::string_view head, const std::string& embedding, double stddev);
// Cross entropy, outputs, and the keys that have no effect.
void end_model(HfModel& model, const HfConfig& config, ValueId logits, ValueId extra_loss = none);

}  // namespace ds
