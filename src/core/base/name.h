#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace ds {

inline constexpr size_t kMostName = 512;  // bytes

// Names of graphs, inputs, parameters and other values stand between blanks in the text form of
// graphs and programs, and as members in JSON of checkpoints and safetensors files. Whatever passes
// here comes back from each of them as it was. Names that are made from others have no limit.
// Throws DS_ERROR_INVALID_ARGUMENT; `kind` begins the message: "graph", "parameter".
void require_name(std::string_view kind, std::string_view name, size_t most = kMostName);

// The part of a model that a parameter belongs to, by its name: "h.3.mlp.fc.weight" is of the layer
// "h.3", "wte.weight" of "wte", which is none of several.
struct Scope {
  std::string name;
  bool numbered = false;
};
Scope scope_of(const std::string& name);

}  // namespace ds
