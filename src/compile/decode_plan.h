#pragma once
#include <string>
#include <vector>

#include "compile/pipeline.h"

namespace ds {

// A plan without training: parameters in the compute type, caches, and no other state. Stages 0 to 2 hold
// whole parameters, stage 3 shards.
struct InferencePlan {
  ZeroPlan zero;
  DecodePlan decode;
  Program refresh;  // whole small parameters from the ranks' parts, in stage 3
  std::string hash;
};
InferencePlan compile_inference(const Graph& forward, const Config& config, const DecodeRequest& request,
                                int rank, const Mesh& mesh, const Machine& machine,
                                bool verify_passes = true);
MemoryPlan memory_plan(const InferencePlan& plan);

// The two halves of compiling a decode program: its graph and persistent buffers, which join `zero`; and,
// when no more buffers come, its program.
DecodePlan begin_decode(const Graph& forward, DType compute, const DecodeRequest& request, ZeroPlan& zero);
void finish_decode(DecodePlan& plan, const ZeroPlan& zero, const Config& config, const Machine& machine,
                   const FinishOptions& options);

}  // namespace ds
