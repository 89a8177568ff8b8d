#pragma once
#include "core/base/json.h"

namespace ds {

// Returns the op table as JSON, for programs that write bindings or check attributes.
// docs/reference/ops.md describes the members.
Json op_schema();

}  // namespace ds
