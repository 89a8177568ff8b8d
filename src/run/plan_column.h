#pragma once
#include <string>

#include "compile/plan.h"
#include "core/config/config.h"
#include "monitor/plan_picture.h"

namespace ds {

// Returns a training step of a plan as a column of a picture, with the times predicted for the
// default Machine.
PlanColumn plan_column(const Plan& plan, const ZeroConfig& zero);

// Returns a sentence that says what the times in such columns are based on.
std::string plan_column_note();

}  // namespace ds
