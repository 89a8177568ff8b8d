#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/program/granules.h"

namespace ds {

struct ZeroPlan;

// A parameter [rows, width] of which a micro-step's gradient is +0 but for the rows that ids name which are
// an input of the graph.
struct RowTable {
  ParamId param;
  std::string name;  // of the parameter
  int64_t rows = 0, width = 0;
  InputId input;      // the ids
  TensorType ids;     // of one micro-step
  int64_t bound = 0;  // most rows that they name
};

// The parameters of a forward part that one embedding reads, by ids that are an input, and nothing else.
std::vector<RowTable> find_row_tables(const Graph& graph);

// Bytes that a rank receives to add up, in one micro-step, a bucket of numel elements of its own, whole or as
// codes; and the same of a table as packed rows. The plan has its levels, policy and quantization.
int64_t whole_bytes(const ZeroPlan& plan, int64_t numel);
int64_t row_bytes(const ZeroPlan& plan, const RowTable& table);

// Enters into the plan those tables that move fewer bytes as rows, and what was decided into its notes; their
// parameters share no bucket.
void choose_row_tables(ZeroPlan& plan, std::span<const RowTable> tables,
                       IdVector<ParamId, ParamSpec>& params);

}  // namespace ds
