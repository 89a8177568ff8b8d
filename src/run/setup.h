#pragma once
#include "core/base/json.h"

namespace ds {

// Applies a JSON merge patch (RFC 7396): members of patch replace those of document, objects are merged,
// null removes.
void merge_patch(Json& document, const Json& patch);

}  // namespace ds
