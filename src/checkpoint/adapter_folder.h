#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/state_access.h"
#include "checkpoint/weight_match.h"
#include "core/base/json.h"
#include "core/config/config.h"
#include "core/graph/graph.h"
#include "nn/adapter_keys.h"

namespace ds {

// The folder of an adapter as PEFT saves it: adapter_config.json and adapter_model.safetensors.
inline constexpr const char* kAdapterConfig = "adapter_config.json";
inline constexpr const char* kAdapterFile = "adapter_model.safetensors";

// Returns whether the folder has an adapter_config.json and no model of its own.
bool is_adapter_folder(const std::string& folder);

// Reads the section `adapter` that adapter_config.json describes. Throws DS_ERROR_CONFIG, naming
// file and key, for what libds does not have.
AdapterKeys read_adapter_config(const std::string& folder);
// Returns the base that the adapter was trained on, as adapter_config.json names it, or "".
std::string adapter_base(const std::string& folder);

// Returns a hash of the names and bytes of the weights of a model folder, or of the bytes of a GGUF
// file.
std::string base_hash(const std::string& path);

// If adapter.folder is given, takes all other keys of the section from it and refuses those that
// the document gives as well. Takes the keys of adapter.others from their folders.
void take_adapter_folder(Config& config);

// Returns the name of a parameter in the file of an adapter. PEFT puts a prefix before names and
// leaves the adapter's name out. `adapted` says whether the parameter is the bias of a layer with
// an adapter, which PEFT calls its base_layer.
std::string stored_adapter_name(const std::string& param, bool adapted);

// Returns, for each parameter, whether it is saved with the adapter.
IdVector<ParamId, char> saved_with_adapter(const AdapterKeys& keys,
                                           const IdVector<ParamId, std::string>& names);

// Assigns the tensors of an adapter's file to the parameters of a model, as match_weights() does
// for a model. Throws DS_ERROR_CONFIG if a parameter of the adapter is missing, if the model
// lacks the parameter of a tensor, if a shape or type differs, or if a tensor is a parameter of the
// base that adapter_config.json does not name. `adapter` is the name that the adapter has in the
// model.
WeightMatch match_adapter(const IdVector<ParamId, std::string>& names,
                          const IdVector<ParamId, std::vector<int64_t>>& shapes,
                          const std::string& folder, const std::string& adapter = kOwnAdapter);

// Throws DS_ERROR_CONFIG if the products of the folder's adapters have other factors than the keys
// give them.
void check_factors(const std::string& folder, const AdapterKeys& keys,
                   const IdVector<ParamId, std::string>& names);

// Saves the adapter's parameters, and what modules_to_save and bias name, as PEFT does. `base` is
// the folder of the base, or "". Collective, as save_weights().
void save_adapter(StateAccess& state, const AdapterKeys& keys, const std::string& folder,
                  const std::string& base);

}  // namespace ds
