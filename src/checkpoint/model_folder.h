#pragma once
#include <string>

#include "nn/models/hf.h"

namespace ds {

// config.json of a Hugging Face model folder. DS_ERROR_NOT_FOUND, DS_ERROR_CORRUPT (no JSON object).
Json read_model_config(const std::string& folder);

// hf_model() of the folder's config.json; errors name the file. When the folder has weights, their headers,
// names, dtypes and shapes are checked against the model (errors as of load_weights), so that whoever goes on
// to take memory for it has a model of the files' size.
HfModel build_hf_model(const std::string& folder, int64_t bound, int64_t seq,
                       HfMode mode = HfMode::evaluation);

}  // namespace ds
