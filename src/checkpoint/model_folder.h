#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/config/config.h"
#include "core/graph/graph.h"
#include "nn/models/hf.h"
#include "nn/models/hf_rows.h"

namespace ds {

// Names and shapes of the parameters of a graph.
struct ParamTable {
  explicit ParamTable(const Graph& graph);
  IdVector<ParamId, std::string> names;
  IdVector<ParamId, std::vector<int64_t>> shapes;
};

// A model folder of these functions may also be a GGUF file, whose metadata takes the place of
// config.json.

// Reads config.json of a Hugging Face model folder. Throws DS_ERROR_NOT_FOUND if it does not exist,
// DS_ERROR_CORRUPT if it is not a JSON object, and DS_ERROR_CONFIG if it belongs to another kind of
// folder, such as a run.
Json read_model_config(const std::string& folder);

// Calls hf_positions() for `config`, the config.json of `folder`. Errors name the file.
int64_t model_positions(const std::string& folder, const Json& config);

// Calls hf_model() for the folder's config.json. Errors name the file. If the folder has weights,
// their headers, names, dtypes and shapes are checked against the model (errors as in
// load_weights()). So a caller allocates memory only for a model whose files exist in full size. If
// the head and the embedding are both stored and differ, they are not tied, whatever config.json
// says.
HfModel build_hf_model(const std::string& folder, int64_t bound, int64_t seq,
                       HfMode mode = HfMode::evaluation, HfBatch batch = {});

// Logs a warning if config.json ties two tensors that are stored with different values, and a
// warning that lists the keys of config.json without effect, if there are any.
void warn_unread(const HfModel& model, const std::string& folder);

// Maps names of tensors in the folder's files to the names of the parameters of `graph` that they
// hold. Tensors that hold no parameter are left out. In place of the names in a GGUF file, those of
// the parameters are used. Errors are those of load_weights().
std::map<std::string, std::string> stored_names(const Graph& graph, const std::string& folder);

// Builds the model that config.model names, a built-in family or a model folder, for micro-batches
// of at most batch_rows() tokens. Throws DS_ERROR_CONFIG if it names neither. The model of a folder
// uses the dropout rates of its config.json, or no dropout if the configuration sets model.dropout,
// which must be 0 there. With preference training, the model is one of pairs (prefer_pairs()), and
// preference.disable_dropout also removes the dropout of an adapter. Sets the "auto" keys whose
// values depend on the width of the folder's model.
HfModel configured_model(Config& config);

// Sets these "auto" keys as configured_model() does, without building the model.
void fill_from_folder(Config& config);

}  // namespace ds
