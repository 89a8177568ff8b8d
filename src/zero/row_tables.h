#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/program/granules.h"
#include "core/program/levels.h"

namespace ds {

// A parameter [rows, width] whose gradient in a micro-step is +0 outside the rows that an id input
// of the graph names.
struct RowTable {
  ParamId param;
  // The name of the parameter.
  std::string name;
  int64_t rows = 0, width = 0;
  // The input that contains the ids, and its type in one micro-step.
  InputId input;
  TensorType ids;
  // The largest number of rows that the ids of one reduction can name.
  int64_t bound = 0;
};

// Returns the parameters of a forward graph that are read only by an embedding whose ids are an
// input of the graph.
std::vector<RowTable> find_row_tables(const Graph& graph);

// The properties of a reduction of gradients that determine how many bytes a rank receives in it.
struct ReductionTraffic {
  RankLevels levels;
  // Number of levels that gradients are cut over.
  int cut = 0;
  // Bits of the codes in which gradients travel, or 0 if they travel in type `wire`.
  int64_t bits = 0;
  DType wire = DS_DTYPE_F32;
  // How often gradients are reduced, for notes: once in each "micro-step" or in each "step".
  const char* each = "micro-step";
  // Returns the bytes for a bucket of `numel` elements that is reduced as a whole, in type `wire`
  // or as codes.
  int64_t whole_bytes(int64_t numel) const;
  // Returns the bytes for a table that is reduced as packed rows.
  int64_t row_bytes(const RowTable& table) const;
};

// The tables whose reduction moves fewer bytes as rows than as a whole.
struct ChosenTables {
  std::vector<RowTable> tables;
  // One line for each table, chosen or not, with both numbers of bytes, or a line that says that
  // the model has no such table. Empty on a single rank.
  std::vector<std::string> notes;
};
// Chooses the tables that are reduced as rows and marks their parameters in `params` as `alone`, so
// that each gets its own bucket.
ChosenTables choose_row_tables(const ReductionTraffic& traffic, std::span<const RowTable> tables,
                               IdVector<ParamId, ParamSpec>& params);

}  // namespace ds
