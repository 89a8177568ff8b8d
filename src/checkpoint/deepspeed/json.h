#pragma once
#include "core/base/json.h"
#include "io/pickle.h"

namespace ds {

// Converts a value of a pickle to JSON as far as JSON can express it. Tuples and sets become
// arrays; an instance of a class becomes an object with the members "class" and "state"; tensors
// and values that are nested too deeply become null.
Json pickle_json(const Pickle& pickle, const PickleValue& value);

// Returns whether a checkpoint's configuration, {"config": {...}}, selects DeepSpeed's optimizer
// Muon.
bool is_muon(const Json& config);

}  // namespace ds
