#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "compile/finish_program.h"
#include "compile/memory_plan.h"
#include "core/config/config.h"
#include "core/graph/graph.h"
#include "core/program/mesh.h"
#include "core/program/program.h"
#include "zero/policy.h"

namespace ds {

// Asks for a program that continues text token by token; docs/adr/0009.
struct DecodeRequest {
  int64_t positions = 0;        // tokens of the longest text; 0: no such program
  int64_t position_offset = 0;  // of an input `positions` of the model (HfModel::position_offset)
  int64_t chunk = 64;           // tokens of a prompt fed at once, at most
  bool by_length = false;       // DecodeOptions::by_length
};

struct DecodePlan {
  Graph graph;                         // of decode_graph(), in its final types
  IdVector<InputId, BufferId> inputs;  // caches are buffers of the program alone, and kept
  BufferId logits;                     // compute type [1, vocabulary]
  int64_t positions = 0, position_offset = 0;
  Program program;  // "decode"
};

// Whether an input of decode_graph() is a cache: the others are ids.
bool is_cache(const Value& input);

// A plan without training: parameters in the compute type, caches, and no other state. Stages 0 to
// 2 hold whole parameters, stage 3 shards.
struct InferencePlan {
  ZeroPlan zero;
  DecodePlan decode;
  Program refresh;  // whole small parameters from the ranks' parts, in stage 3
  std::string hash;
};
InferencePlan compile_inference(const Graph& forward, const Config& config,
                                const DecodeRequest& request, int rank, const Mesh& mesh,
                                const Machine& machine, bool verify_passes = true);
MemoryPlan memory_plan(const InferencePlan& plan);

// The two halves of compiling a decode program: its graph and persistent buffers, which join
// `zero`; and, when no more buffers come, its program, in whose transient memory the caches lie.
DecodePlan begin_decode(const Graph& forward, DType compute, const DecodeRequest& request,
                        ZeroPlan& zero);
void finish_decode(DecodePlan& plan, const ZeroPlan& zero, const Config& config,
                   const Machine& machine, const FinishOptions& options);

}  // namespace ds
