#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "comm/communicator.h"
#include "core/base/half.h"
#include "support/errors.h"

// Compares tree_reduce with its definition for every type and operation and for many numbers of
// ranks, bit for bit.
namespace ds {
namespace {

template <typename T>
T join(ReduceOp op, T a, T b) {
  if (op == ReduceOp::max) return std::isnan(static_cast<double>(a)) || a > b ? a : b;
  if (op == ReduceOp::min) return std::isnan(static_cast<double>(a)) || a < b ? a : b;
  if constexpr (std::is_same_v<T, int32_t>)
    return static_cast<T>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
  if constexpr (std::is_same_v<T, int64_t>)
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  return static_cast<T>(a + b);
}

// Reduces as a tree over the next power of two, without the missing ranks.
template <typename T>
T tree(ReduceOp op, const std::vector<std::vector<T>>& values, size_t i, size_t first,
       size_t span) {
  if (span == 1) return values[first][i];
  T left = tree(op, values, i, first, span / 2);
  if (first + span / 2 >= values.size()) return left;
  return join(op, left, tree(op, values, i, first + span / 2, span / 2));
}

template <typename T>
T drawn(size_t rank, size_t i) {
  uint64_t mix = (i * 0x9e3779b97f4a7c15u) ^ (rank * 0xbf58476d1ce4e5b9u + 77);
  mix ^= mix >> 31;
  if constexpr (std::is_floating_point_v<T>) {
    T value = static_cast<T>(static_cast<int64_t>(mix % 2000003) - 1000001) / T{1021};
    return rank % 2 == 0 ? value : value * T{513};
  }
  return static_cast<T>(mix * 0x2545f4914f6cdd1du);
}

// Compares tree_reduce with tree(). `store` rounds a value to an element of type `wire`; `load`
// widens an element.
template <typename T, typename Element, typename Store, typename Load>
void check(DType wire, ReduceOp op, Store store, Load load) {
  for (size_t ranks : {1, 2, 3, 4, 5, 6, 7, 8, 9, 65, 127, 600}) {
    size_t span = 1;
    while (span < ranks) span *= 2;
    for (size_t count : {0, 1, 255, 256, 700}) {
      if (ranks > 9 && count > 1 && count != 256) continue;
      std::vector<std::vector<Element>> data(ranks, std::vector<Element>(count));
      std::vector<std::vector<T>> values(ranks, std::vector<T>(count));
      std::vector<const void*> src;
      for (size_t r = 0; r < ranks; ++r) {
        for (size_t i = 0; i < count; ++i) {
          data[r][i] = store(drawn<T>(r, i));
          values[r][i] = load(data[r][i]);
        }
        src.push_back(data[r].data());
      }
      std::vector<T> out(count, T{3}), expected(count);
      for (size_t i = 0; i < count; ++i) {
        expected[i] = tree(op, values, i, 0, span);
        if (op == ReduceOp::mean) expected[i] = static_cast<T>(expected[i] / static_cast<T>(ranks));
      }
      tree_reduce(src.data(), static_cast<int>(ranks), wire, op, out.data(), count);
      ASSERT_TRUE(count == 0 || std::memcmp(out.data(), expected.data(), count * sizeof(T)) == 0)
          << dtype_name(wire) << " " << reduce_op_name(op) << " of " << ranks << " ranks, "
          << count;
      if (sizeof(T) != sizeof(Element)) continue;
      tree_reduce(src.data(), static_cast<int>(ranks), wire, op, data[ranks - 1].data(), count);
      ASSERT_TRUE(count == 0 ||
                  std::memcmp(data[ranks - 1].data(), expected.data(), count * sizeof(T)) == 0)
          << "in place: " << dtype_name(wire) << " " << reduce_op_name(op) << " of " << ranks;
    }
  }
}

template <typename T>
void check_plain(DType wire, ReduceOp op) {
  auto same = [](T x) { return x; };
  check<T, T>(wire, op, same, same);
}

TEST(Reduction, EveryTypeAndOperationIsReducedInTheTree) {
  for (ReduceOp op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::max, ReduceOp::min}) {
    check_plain<float>(DS_DTYPE_F32, op);
    check_plain<double>(DS_DTYPE_F64, op);
    check<float, bf16>(
        DS_DTYPE_BF16, op, [](float x) { return bf16(x); },
        [](bf16 x) { return static_cast<float>(x); });
    check<float, uint16_t>(
        DS_DTYPE_F16, op, [](float x) { return narrow_half(x); },
        [](uint16_t x) { return widen_half(x); });
    if (op == ReduceOp::mean) continue;
    check_plain<int32_t>(DS_DTYPE_I32, op);
    check_plain<int64_t>(DS_DTYPE_I64, op);
    check_plain<uint8_t>(DS_DTYPE_U8, op);
  }
}

TEST(Reduction, ANanIsTheLargestAndTheSmallest) {
  float nan = std::numeric_limits<float>::quiet_NaN();
  for (int where = 0; where < 3; ++where) {
    float values[3] = {1, 2, 3};
    values[where] = nan;
    const void* src[] = {&values[0], &values[1], &values[2]};
    for (ReduceOp op : {ReduceOp::max, ReduceOp::min}) {
      float out = 0;
      tree_reduce(src, 3, DS_DTYPE_F32, op, &out, 1);
      EXPECT_TRUE(std::isnan(out)) << where;
    }
  }
}

TEST(Reduction, AMeanOfIntegersIsRefused) {
  int32_t one = 1, out = 0;
  const void* src[] = {&one};
  std::string message =
      test::message_of([&] { tree_reduce(src, 1, DS_DTYPE_I32, ReduceOp::mean, &out, 1); },
                       DS_ERROR_INVALID_ARGUMENT);
  test::expect_names(message, {"mean", "i32"});
}

}  // namespace
}  // namespace ds
