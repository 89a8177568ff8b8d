#pragma once
#include <string>

#include "compile/pipeline.h"
#include "monitor/plan_picture.h"

namespace ds {

// A training step of a plan as a column of a picture, on the machine that plans assume.
PlanColumn plan_column(const Plan& plan, const Config& config);

// What the times of such columns stand for, in one sentence.
std::string plan_column_note();

}  // namespace ds
