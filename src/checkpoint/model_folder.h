#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "core/config/config.h"
#include "nn/models/hf.h"
#include "nn/models/hf_rows.h"

namespace ds {

// config.json of a Hugging Face model folder. DS_ERROR_NOT_FOUND, DS_ERROR_CORRUPT (no JSON
// object).
Json read_model_config(const std::string& folder);

// hf_positions() of the folder's config.json; errors name the file.
int64_t model_positions(const std::string& folder, const Json& config);

// hf_model() of the folder's config.json; errors name the file. When the folder has weights, their
// headers, names, dtypes and shapes are checked against the model (errors as of load_weights), so
// that whoever goes on to take memory for it has a model of the files' size, and a head whose
// stored tensor differs from the embedding that config.json ties it to is not tied.
HfModel build_hf_model(const std::string& folder, int64_t bound, int64_t seq,
                       HfMode mode = HfMode::evaluation, HfBatch batch = {});

// One line of warning that names the keys of the folder's config.json without effect; none when
// there are none.
void warn_unread(const HfModel& model, const std::string& folder);

// The parameter of the graph that each tensor of the folder's files is, by the tensor's name.
// Errors as of load_weights.
std::map<std::string, std::string> stored_names(const Graph& graph, const std::string& folder);

// The model that config.model names, built in or in a folder, for micro-batches of micro_batch *
// sequence tokens; DS_ERROR_CONFIG when it names none. A folder's model has its config.json's
// dropout, unless model.dropout is given (as 0). Keys of the configuration whose "auto" waits for
// the model's width get it.
HfModel configured_model(Config& config);

// Only the latter: what configured_model does to the configuration.
void fill_from_folder(Config& config);

}  // namespace ds
