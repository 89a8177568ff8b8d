#pragma once
#include "core/base/json.h"
#include "io/pickle.h"

namespace ds {

// A value of a pickle as far as JSON can say it: tuples and sets become arrays, an object becomes
// an object with the member "class" and its state, and tensors and what is nested too deep null.
Json pickle_json(const Pickle& pickle, const PickleValue& value);

// Whether a checkpoint's configuration, {"config": {...}}, names DeepSpeed's optimizer Muon.
bool is_muon(const Json& config);

}  // namespace ds
