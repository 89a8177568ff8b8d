#pragma once
#include "core/base/json.h"

namespace ds {

// The op table for programs that write bindings or check attributes; docs/reference/ops.md says
// what the members are.
Json op_schema();

}  // namespace ds
