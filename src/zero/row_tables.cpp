#include "zero/row_tables.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "core/base/round.h"
#include "core/graph/ops.h"
#include "core/graph/readers.h"
#include "core/program/codes.h"

namespace ds {

std::vector<RowTable> find_row_tables(const Graph& graph) {
  IdVector<ValueId, int> readers = count_readers(graph);
  std::vector<RowTable> tables;
  for (ParamId p : graph.params.ids()) {
    // A table that is also read as a matrix, for example by a tied output head, has a gradient in
    // every row.
    ValueId value = graph.params[p].value;
    if (readers[value] != 1) continue;
    for (const Node& node : graph.nodes) {
      const std::optional<IdOperand>& lookup = op(node.op).ids;
      if (!lookup || lookup->targets || node.in[lookup->from] != value) continue;
      auto ids = std::find(graph.inputs.begin(), graph.inputs.end(), node.in[lookup->ids]);
      if (ids == graph.inputs.end()) continue;
      const TensorType &table = graph.type(value), &type = graph.type(*ids);
      int64_t rows = table.shape[0].extent;
      tables.push_back({p, graph.params[p].name, rows, table.shape[1].extent,
                        InputId(ids - graph.inputs.begin()), type,
                        std::min(rows, type.shape.numel(graph.bound))});
    }
  }
  return tables;
}

// Follows Reducer::sum_of_ranks and sum_of_codes (zero/reduce.cpp). At each level a rank receives
// its part from every other rank of the group, either as codes or, at the first level, in the type
// that travels and at outer levels in f32. Then the levels that gradients are not cut over are
// gathered in f32.
int64_t ReductionTraffic::whole_bytes(int64_t numel) const {
  int64_t sum_size = size_of(DS_DTYPE_F32), bytes = 0;
  int depth = levels.depth();
  for (int level = 0; level < depth; ++level) {
    int64_t part = numel / levels.ways(level + 1), element = level == 0 ? size_of(wire) : sum_size;
    bytes += (bits > 0 ? code_bytes(part, bits) : part * element) * (levels.group(level).size - 1);
  }
  for (int level = depth; level-- > cut;)
    bytes += numel / levels.ways(level + 1) * sum_size * (levels.group(level).size - 1);
  return bytes;
}

// A rank receives `bound` rows with their numbers from every other rank, whatever the levels are.
int64_t ReductionTraffic::row_bytes(const RowTable& table) const {
  int64_t row = size_of(DS_DTYPE_I32) + table.width * size_of(wire);
  return (levels.ranks() - 1) * table.bound * row;
}

ChosenTables choose_row_tables(const ReductionTraffic& traffic, std::span<const RowTable> tables,
                               IdVector<ParamId, ParamSpec>& params) {
  ChosenTables chosen;
  int ranks = traffic.levels.ranks();
  if (ranks == 1) return chosen;
  if (tables.empty())
    chosen.notes.push_back(
        "sparse_gradients: no parameter is read by an embedding of input ids and by nothing else");
  for (const RowTable& table : tables) {
    ParamSpec& param = params[table.param];
    int64_t whole = traffic.whole_bytes(round_up(param.numel, ranks * param.granule));
    int64_t rows = traffic.row_bytes(table);
    param.alone = rows < whole;
    if (param.alone) chosen.tables.push_back(table);
    chosen.notes.push_back(fmt::format(
        "sparse_gradients: '{}' is reduced {}: {} bytes received in a {} as rows, {} as a whole",
        table.name, param.alone ? "as rows" : "as a whole", rows, traffic.each, whole));
  }
  return chosen;
}

}  // namespace ds
