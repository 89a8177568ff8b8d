#pragma once
#include <memory>
#include <string>

#include "checkpoint/state_source.h"
#include "nn/adapter_keys.h"

namespace ds {

// An adapter in files as a source of masters: the matrices A and B of each of its layers, and the
// parameters of the base that are saved with it.
class AdapterSource : public StateSource {
 public:
  AdapterKeys keys;
};

// Opens the adapter in a folder of PEFT's form. `base` is the model folder or the GGUF file of its
// base. Errors are those of match_adapter().
std::unique_ptr<AdapterSource> open_adapter_source(const std::string& adapter,
                                                   const std::string& base);

}  // namespace ds
