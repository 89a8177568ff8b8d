#include "checkpoint/gguf/row_order.h"

#include "core/base/error.h"

namespace ds {
namespace {

// A head of the folder has its first half and then its second half; that of the file alternates.
int64_t alternating(int64_t row, int64_t width) {
  const int64_t head = row / width, column = row % width, half = width / 2;
  return head * width + column % half * 2 + column / half;
}

// The folder has q, k and v of the first head, then those of the second head, and so on.
int64_t by_part(int64_t row, int64_t width, int64_t heads) {
  const int64_t head = row / (3 * width), part = row / width % 3;
  return (part * heads + head) * width + row % width;
}

}  // namespace

std::vector<int64_t> gguf_rows(GgufOrder order, int64_t rows, int64_t heads) {
  const bool pairs = order == GgufOrder::query_pairs || order == GgufOrder::key_pairs;
  if (!pairs && order != GgufOrder::parts_first) return {};
  const int64_t step = heads * (pairs ? 2 : 3);
  if (heads < 1 || rows % step != 0)
    raise(DS_ERROR_CONFIG, "{} rows cannot be divided among {} heads", rows, heads);
  std::vector<int64_t> out;
  for (int64_t row = 0; row < rows; ++row)
    out.push_back(pairs ? alternating(row, rows / heads) : by_part(row, rows / heads / 3, heads));
  return out;
}

std::vector<int64_t> inverse_rows(const std::vector<int64_t>& rows) {
  std::vector<int64_t> out(rows.size());
  for (size_t i = 0; i < rows.size(); ++i)
    out[static_cast<size_t>(rows[i])] = static_cast<int64_t>(i);
  return out;
}

}  // namespace ds
