#pragma once
#include <string>

#include "core/base/json.h"
#include "support/dice.h"

namespace ds::test {

// Makes one to three random edits: flips bits, replaces, inserts, removes or repeats bytes, or cuts
// off the end.
std::string mutate_bytes(std::string text, Dice& dice);

// Makes one to three random edits that keep the document valid JSON: values change kind, size or
// sign; members and elements are removed, renamed, added or repeated, which includes duplicate
// keys.
Json mutate_json(Json document, Dice& dice);

}  // namespace ds::test
