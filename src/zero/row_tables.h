#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/program/granules.h"
#include "core/program/levels.h"

namespace ds {

// A parameter [rows, width] of which a micro-step's gradient is +0 but for the rows that ids name
// which are an input of the graph.
struct RowTable {
  ParamId param;
  std::string name;  // of the parameter
  int64_t rows = 0, width = 0;
  InputId input;      // the ids
  TensorType ids;     // of one micro-step
  int64_t bound = 0;  // most rows that the ids of a reduction name
};

// The parameters of a forward part that one embedding reads, by ids that are an input, and nothing
// else.
std::vector<RowTable> find_row_tables(const Graph& graph);

// What a rank receives in a reduction to add up gradients.
struct ReductionTraffic {
  RankLevels levels;
  int cut = 0;       // levels over which gradients are cut
  int64_t bits = 0;  // of their codes; 0: none, they are of type `wire`
  DType wire = DS_DTYPE_F32;
  const char* each = "micro-step";                 // or "step": what has one reduction
  int64_t whole_bytes(int64_t numel) const;        // of a bucket of its own, whole or as codes
  int64_t row_bytes(const RowTable& table) const;  // of a table, as packed rows
};

// The tables that move fewer bytes as rows; their parameters, marked in `params`, share no bucket.
struct ChosenTables {
  std::vector<RowTable> tables;
  std::vector<std::string> notes;  // a line for each table
};
ChosenTables choose_row_tables(const ReductionTraffic& traffic, std::span<const RowTable> tables,
                               IdVector<ParamId, ParamSpec>& params);

}  // namespace ds
