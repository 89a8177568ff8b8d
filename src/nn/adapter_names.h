#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "nn/adapter_keys.h"

namespace ds {

// The parameters of an adapter: the matrices A [rank, inputs] and B [outputs, rank] and, with DoRA,
// the magnitudes [outputs].
enum class AdapterPart { a, b, magnitude };

// The name that PEFT puts before the names of a model's parameters in adapter_model.safetensors.
inline constexpr std::string_view kAdapterPrefix = "base_model.model.";

// Returns the name of the parameter that holds a part of an adapter of a linear layer, as PEFT
// names it in memory: "MODULE.lora_A.default.weight" for the adapter "default".
std::string adapter_param(std::string_view module, AdapterPart part,
                          std::string_view adapter = kOwnAdapter);
// The parts of the name of an adapter's parameter: those of "MODULE.lora_A.NAME.weight" are MODULE,
// ".lora_A" and NAME. All are empty for a parameter of the base.
struct AdapterParam {
  std::string_view module, part, adapter;
};
AdapterParam split_adapter_param(std::string_view param);
// Returns the layer whose adapter the parameter belongs to, or "" for a parameter of the base.
inline std::string adapted_module(std::string_view param) {
  return std::string(split_adapter_param(param).module);
}
// Returns whether the parameter is a part of an adapter.
inline bool is_adapter_param(std::string_view param) { return !adapted_module(param).empty(); }

// Returns the name that a module has in PEFT, or the same name. The head of GPT-NeoX is embed_out
// in model folders and lm_head in Transformers 5. Rules and folders of adapters know both.
std::string_view peft_module(std::string_view module);

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
