#pragma once
#include <string>

#include "core/base/json.h"
#include "support/dice.h"

namespace ds::test {

// One to three random edits: bits turned, bytes replaced, inserted, taken out, repeated; the end
// cut off.
std::string mutate_bytes(std::string text, Dice& dice);

// One to three random edits of a document that stays JSON: values of another kind, size or sign,
// members and elements taken out, renamed, added, repeated (duplicate keys too).
Json mutate_json(Json document, Dice& dice);

}  // namespace ds::test
