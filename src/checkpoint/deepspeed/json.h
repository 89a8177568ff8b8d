#pragma once
#include "core/base/json.h"
#include "io/pickle.h"

namespace ds {

// Converts a value of a pickle to JSON as far as JSON can express it. Tuples become arrays;
// dictionaries of any class become objects; enumerations become their value; other instances of a
// class become an object with the members "class" and "state". Tensors, NaN and values that are
// nested too deeply become null.
Json pickle_json(const Pickle& pickle, const PickleValue& value);

// Returns whether a checkpoint's configuration, {"config": {...}}, selects DeepSpeed's optimizer
// Muon.
bool is_muon(const Json& config);

}  // namespace ds
