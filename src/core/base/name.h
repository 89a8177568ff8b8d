#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace ds {

// The largest size of a name, in bytes.
inline constexpr size_t kMostName = 512;

// Refuses names that would not survive a round trip. Names of graphs, inputs, parameters and other
// values are separated by blanks in the text form of graphs and programs, and are members of JSON
// in checkpoints and safetensors files. A name that passes is read back unchanged from all of them.
// Names derived from other names have no length limit. Throws DS_ERROR_INVALID_ARGUMENT; `kind`
// begins the message: "graph", "parameter".
void require_name(std::string_view kind, std::string_view name, size_t most = kMostName);

// The part of a model to which a parameter belongs, according to its name: "h.3.mlp.fc.weight"
// belongs to the numbered layer "h.3", "wte.weight" to the part "wte", which has no number.
struct Scope {
  std::string name;
  bool numbered = false;
};
Scope scope_of(const std::string& name);

}  // namespace ds
