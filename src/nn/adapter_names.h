#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "nn/adapter_keys.h"

namespace ds {

// The two matrices of an adapter: A [rank, inputs] and B [outputs, rank].
enum class AdapterPart { a, b };

// The name that PEFT puts before the names of a model's parameters in adapter_model.safetensors.
inline constexpr std::string_view kAdapterPrefix = "base_model.model.";

// Returns the name of the parameter that holds a part of the adapter of a linear layer, as PEFT
// names it in memory: "MODULE.lora_A.default.weight".
std::string adapter_param(std::string_view module, AdapterPart part);
// Returns the layer whose adapter the parameter belongs to, or "" for a parameter of the base.
std::string adapted_module(std::string_view param);
// Returns whether the parameter is a part of an adapter.
inline bool is_adapter_param(std::string_view param) { return !adapted_module(param).empty(); }

// Returns the module that has a parameter of this name: the name up to its last dot.
std::string_view module_of(std::string_view param);

// Returns whether PEFT's rules give the linear layer `module` an adapter. "all-linear" matches
// every name, since only the graph shows which layer is the head.
bool is_target(const AdapterKeys& keys, const std::string& module);
// Returns whether a name in a list of modules matches the module.
bool is_named(const std::string& name, std::string_view module);
// Return the rank of the adapter of a module, and the factor of its product.
int64_t rank_of(const AdapterKeys& keys, const std::string& module);
double scale_of(const AdapterKeys& keys, const std::string& module);
// Returns whether modules_to_save names the module.
bool is_saved_module(const AdapterKeys& keys, std::string_view module);

}  // namespace ds
