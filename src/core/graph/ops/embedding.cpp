// Operations that select rows of a table by the id of a word or by the position in the sequence,
// and last_row. The gradients of the first two sum, for each row of the table, the rows of dy that
// used it. An `embedding` whose table has no other reader lets ZeRO exchange only the rows that its
// ids name (zero/row_tables.h).
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/error.h"
#include "core/graph/ops/rules.h"

namespace ds {
namespace {

using Types = std::vector<TensorType>;
using In = std::span<const TensorType>;

// Checks attribute 'padding' for a table of `rows` rows.
void check_padding(const OperandCheck& check, const Attrs& attrs, int64_t rows) {
  check.within(attrs, "padding", -1, rows - 1, -1);
}

Types infer_embedding(In in, const Attrs& attrs) {
  OperandCheck check("embedding", in);
  check.matrix(0);
  check.constant(0);
  require(in[1].shape.rank() == 1, "embedding: operand 'ids' must be i32[n], got {}", in[1].text());
  check.equal(1, {DS_DTYPE_I32, {in[1].shape[0]}});
  check_padding(check, attrs, in[0].shape[0].extent);
  return {{in[0].dtype, {in[1].shape[0], in[0].shape[1]}}};
}

Types infer_embedding_dw(In in, const Attrs& attrs) {
  OperandCheck check("embedding_dw", in);
  check.matrix(0);
  check.equal(1, {DS_DTYPE_I32, {in[0].shape[0]}});
  int64_t rows = check.positive(attrs, "rows");
  check_padding(check, attrs, rows);
  return {{in[0].dtype, {rows, in[0].shape[1]}}};
}

// Appends the gradient of the table, which has all its rows. Ids get no gradient.
std::vector<ValueId> embedding_backward(BackwardContext& c) {
  ValueId w = c.node.in[0];
  Attrs attrs{{"rows", c.graph.type(w).shape[0].extent}};
  if (c.node.attrs.has("padding")) attrs.set("padding", c.node.attrs.integer("padding"));
  return {c.emit("embedding_dw", {c.first_grad(), c.node.in[1]}, attrs, {0}), none};
}

// Returns the type of x plus positions. The table may have more rows than a sequence. The surplus
// rows are not read, and their gradient is 0.
Types infer_position(In in, const Attrs& attrs) {
  OperandCheck check("position", in);
  check.matrix(0);
  check.matrix(1);
  check.constant(1);
  check.equal(1, {in[0].dtype, {in[1].shape[0], in[0].shape[1]}});
  int64_t seq = check.positive(attrs, "seq");
  require(seq <= in[1].shape[0].extent,
          "position: attribute 'seq' must be at most the number of rows of operand 'w' {}, got {}",
          in[1].text(), seq);
  return {in[0]};
}

// Selects rows of the table by position in the text instead of by row number.
ValueId decode_position(DecodeContext& c) {
  ValueId rows = c.graph.add("embedding", {c.in[1], c.places}, {}, c.name() + ".rows");
  return c.graph.add("add", {c.in[0], rows}, {}, c.name());
}

Types infer_position_dw(In in, const Attrs& attrs) {
  OperandCheck check("position_dw", in);
  check.matrix(0);
  int64_t seq = check.positive(attrs, "seq"), rows = check.positive(attrs, "rows");
  require(seq <= rows, "position_dw: attribute 'seq' must be at most 'rows' {}, got {}", rows, seq);
  return {{in[0].dtype, {rows, in[0].shape[1]}}};
}

std::vector<ValueId> position_backward(BackwardContext& c) {
  ValueId dy = c.first_grad();
  Attrs attrs{{"seq", c.node.attrs.integer("seq")},
              {"rows", c.graph.type(c.node.in[1]).shape[0].extent}};
  return {dy, c.emit("position_dw", {dy}, attrs, {1})};
}

Types infer_last_row(In in, const Attrs&) {
  OperandCheck("last_row", in).matrix(0);
  return {{in[0].dtype, {1, in[0].shape[1]}}};
}

double add_per_element(In in, const Attrs&, int64_t n) {
  return static_cast<double>(in[0].shape.numel(n));
}

double no_arithmetic(In, const Attrs&, int64_t) { return 0; }

// Counts the bytes of the ids and of the rows that they select.
double embedding_read(In in, const Attrs&, int64_t n) {
  int64_t rows = in[1].shape.numel(n), row = in[0].shape[1].extent * size_of(in[0].dtype);
  return static_cast<double>(rows * (row + size_of(in[1].dtype)));
}
// Counts the bytes of x and of the rows of w that a sequence uses.
double position_read(In in, const Attrs& attrs, int64_t n) {
  int64_t rows = in[0].shape.numel(n) / in[1].shape[1].extent;
  int64_t used = rows + std::min(rows, attrs.integer("seq"));
  return static_cast<double>(used * in[1].shape[1].extent * size_of(in[0].dtype));
}

double one_row_read(In in, const Attrs&, int64_t) {
  return static_cast<double>(in[0].shape[1].extent * size_of(in[0].dtype));
}

}  // namespace

void add_embedding_ops(std::vector<OpDef>& table) {
  const OperandDef table_rows{"w", "T[V,C]", "a row for each word"},
      ids{"ids", "i32[n]", "words, 0 to V-1"}, dy{"dy", "T[n,C]", "gradient of the result"},
      x{"x", "T[n,C]", "rows"};
  const AttrDef padding =
                    optional({"padding", AttrKind::integer,
                              "row of w that gets no gradient from this operation; -1: no row"},
                             int64_t{-1}),
                seq{"seq", AttrKind::integer, "rows of a sequence, at most P"};
  table.push_back({.name = "embedding",
                   .doc = "The rows of a table that ids name.",
                   .forms = {{"", {table_rows, ids}, {{"y", "T[n,C]", "a row for each id"}}}},
                   .attrs = {padding},
                   .infer = infer_embedding,
                   .backward = embedding_backward,
                   .flops = no_arithmetic,
                   .read_bytes = embedding_read,
                   .rows = Rows::same,
                   .ids = IdOperand{1, 0, 0}});
  table.push_back({.name = "embedding_dw",
                   .doc = "The gradient of the table of an embedding: the sum of the rows of dy by "
                          "id, in row order in A.",
                   .forms = {{"", {dy, ids}, {{"dw", "T[V,C]", "gradient of w"}}}},
                   .attrs = {{"rows", AttrKind::integer, "V"}, padding},
                   .infer = infer_embedding_dw,
                   .flops = add_per_element});
  table.push_back(
      {.name = "position",
       .doc = "Adds to each row the row of a table for its position in the sequence: y[r] = x[r] + "
              "w[r mod seq].",
       .forms = {{"", {x, {"w", "T[P,C]", "a row for each position"}}, {{"y", "T[n,C]", "sums"}}}},
       .attrs = {seq},
       .infer = infer_position,
       .backward = position_backward,
       .flops = add_per_element,
       .read_bytes = position_read,
       .decode = decode_position});
  table.push_back({.name = "position_dw",
                   .doc = "The gradient of the table of a position; rows from seq on are 0.",
                   .forms = {{"", {dy}, {{"dw", "T[P,C]", "gradient of w"}}}},
                   .attrs = {seq, {"rows", AttrKind::integer, "P"}},
                   .infer = infer_position_dw,
                   .flops = add_per_element});
  table.push_back({.name = "last_row",
                   .doc = "The last row.",
                   .forms = {{"", {x}, {{"y", "T[1,C]", "x[n-1]"}}}},
                   .infer = infer_last_row,
                   .flops = no_arithmetic,
                   .read_bytes = one_row_read});
}

}  // namespace ds
