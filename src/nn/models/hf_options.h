#pragma once
#include <string>
#include <vector>

#include "nn/layers/layers.h"
#include "nn/models/hf.h"
#include "nn/models/hf_config.h"

namespace ds {

// What the families share in reading a configuration and in beginning and ending a graph.

int64_t read_layers(HfConfig& config, std::string_view key);
// An activation by its name in Transformers, as LayerBuilder::activation names it.
std::string read_activation(HfConfig& config, std::string_view key, const std::string& otherwise);
// The row of the token embedding that Transformers gives no gradient, -1: none. `otherwise`: pad_token_id
// where the file has no such key, as the family's class has it (not null, which is none).
int64_t read_padding(HfConfig& config, int64_t vocab, int64_t otherwise = -1);
// Attention windows by layer, 0 is none: from layer_types if given, else `window` where `sliding[layer]`.
std::vector<int64_t> read_windows(HfConfig& config, int64_t window, const std::vector<bool>& sliding);
// Heads that share keys: divides `heads`.
int64_t read_kv_heads(HfConfig& config, int64_t heads);
int64_t read_head_width(HfConfig& config, int64_t hidden, int64_t heads, int64_t otherwise = 0);

// hidden is a multiple of heads.
void check_heads(int64_t hidden, int64_t heads);

// Inputs tokens and targets, name and bound.
HfModel begin_model(HfConfig& config, int64_t bound);
// Learned positions: seq <= rows of the table, which has `positions` of them under `key`.
void check_positions(std::string_view key, int64_t positions, int64_t seq);
ValueId add_ids(HfModel& model, std::string_view name);  // an input i32[n]
// x times the embedding when tie_word_embeddings (`tied_default` when absent), else times a head of its own.
ValueId add_head(HfModel& model, LayerBuilder& build, HfConfig& config, ValueId x, std::string_view head,
                 const std::string& embedding, double stddev, bool tied_default);
// Cross entropy, outputs, and the check that every key was read.
void end_model(HfModel& model, const HfConfig& config, ValueId logits, ValueId extra_loss = -1);

}  // namespace ds
