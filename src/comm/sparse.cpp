#include "comm/sparse.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "comm/reduction.h"
#include "core/base/error.h"

namespace ds {
namespace {

constexpr uint64_t kOutOfOrder = ~uint64_t{0};  // in place of a count

std::vector<int64_t> widened(const void* rows, DType index, size_t count) {
  std::vector<int64_t> out(count);
  if (index == DS_DTYPE_I64) {
    if (count != 0) std::memcpy(out.data(), rows, count * sizeof(int64_t));
  } else {
    const auto* from = static_cast<const int32_t*>(rows);
    std::copy(from, from + count, out.begin());
  }
  return out;
}

// What each rank gives; an error of one is one of all.
std::vector<size_t> agreed_counts(Communicator& comm, uint64_t own, size_t bound, std::string_view label) {
  std::vector<uint64_t> counts(static_cast<size_t>(comm.size()));
  comm.all_gather(&own, counts.data(), sizeof own, label);
  for (size_t r = 0; r < counts.size(); ++r) {
    require(counts[r] != kOutOfOrder, "'{}': the rows of rank {} are not strictly ascending from 0 on", label,
            r);
    require(counts[r] <= bound, "'{}': bound is {} rows, rank {} gives {}", label, bound, r, counts[r]);
  }
  return {counts.begin(), counts.end()};
}

// The rows of all ranks, side by side.
struct Tables {
  std::vector<size_t> counts;
  std::vector<int64_t> rows;
  std::vector<std::byte> values;
};

SparseRows merged(const Tables& all, size_t width, DType wire, ReduceOp op) {
  size_t row_bytes = width * unit_of(wire), ranks = all.counts.size();
  std::vector<size_t> next(ranks), end(ranks);
  for (size_t r = 0, at = 0; r < ranks; ++r) {
    next[r] = at;
    end[r] = at += all.counts[r];
  }
  SparseRows out;
  out.rows = all.rows;
  std::sort(out.rows.begin(), out.rows.end());
  out.rows.erase(std::unique(out.rows.begin(), out.rows.end()), out.rows.end());
  out.values.resize(out.rows.size() * width);
  const std::vector<std::byte> zeros(row_bytes);
  std::vector<const void*> sources(ranks);
  for (size_t i = 0; i < out.rows.size(); ++i) {
    for (size_t r = 0; r < ranks; ++r) {
      bool given = next[r] < end[r] && all.rows[next[r]] == out.rows[i];
      sources[r] = given ? all.values.data() + next[r]++ * row_bytes : zeros.data();
    }
    tree_reduce(sources.data(), static_cast<int>(ranks), wire, op, out.values.data() + i * width, width);
  }
  return out;
}

}  // namespace

SparseRows sparse_all_reduce(Communicator& comm, const void* rows, DType index, const void* values,
                             DType wire, size_t count, size_t width, size_t bound, std::string_view label,
                             ReduceOp op) {
  require(index == DS_DTYPE_I32 || index == DS_DTYPE_I64, "row numbers must be i32 or i64, got {}",
          static_cast<int>(index));
  require(wire == DS_DTYPE_F32 || wire == DS_DTYPE_BF16, "rows must be f32 or bf16, got {}",
          static_cast<int>(wire));
  std::vector<int64_t> own = widened(rows, index, count);
  bool ordered = std::adjacent_find(own.begin(), own.end(), std::greater_equal<>()) == own.end() &&
                 (own.empty() || own[0] >= 0);
  Tables all;
  all.counts = agreed_counts(comm, ordered ? count : kOutOfOrder, bound, label);
  size_t row_bytes = width * unit_of(wire), total = 0;
  std::vector<size_t> numbers, bytes;
  for (size_t rank_count : all.counts) {
    total += rank_count;
    numbers.push_back(rank_count * sizeof(int64_t));
    bytes.push_back(rank_count * row_bytes);
  }
  all.rows.resize(total);
  all.values.resize(total * row_bytes);
  comm.all_gather_v(own.data(), all.rows.data(), numbers, label);
  comm.all_gather_v(values, all.values.data(), bytes, label);
  return merged(all, width, wire, op);
}

}  // namespace ds
