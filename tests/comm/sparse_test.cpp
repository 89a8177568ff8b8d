#include "comm/sparse.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "comm/reduction.h"
#include "support/errors.h"
#include "support/groups.h"

// Sums of rows against the sum of the whole tables, bit for bit.
namespace ds {
namespace {

constexpr size_t kRows = 40, kWidth = 37;

class Sparse : public testing::TestWithParam<test::GroupCase> {};

// Rows that several ranks give, that one gives, and that none does; a rank without any.
std::vector<int64_t> rows_of(int rank, int turn) {
  std::vector<int64_t> out;
  for (int64_t row = 0; row < static_cast<int64_t>(kRows); ++row) {
    if (turn == 1 && rank == 1) continue;
    if (row % (rank + 2) == 0 || row % 11 == 3) out.push_back(row);
  }
  return out;
}

void check(Communicator& comm, DType wire, DType index, ReduceOp op, int turn) {
  size_t unit = unit_of(wire);
  std::vector<int64_t> rows = rows_of(comm.rank(), turn);
  std::vector<std::byte> values = test::elements(wire, comm.rank(), rows.size() * kWidth);
  std::vector<std::byte> table(kRows * kWidth * unit);
  for (size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(&table[static_cast<size_t>(rows[i]) * kWidth * unit], &values[i * kWidth * unit],
                kWidth * unit);
  }
  std::vector<float> dense(kRows * kWidth);
  comm.all_reduce(table.data(), dense.data(), dense.size(), wire, "dense", op);
  std::vector<int32_t> narrow(rows.begin(), rows.end());
  const void* numbers = index == DS_DTYPE_I32 ? static_cast<const void*>(narrow.data()) : rows.data();
  SparseRows sum =
      sparse_all_reduce(comm, numbers, index, values.data(), wire, rows.size(), kWidth, kRows, "sparse", op);
  std::vector<int64_t> expected;
  for (size_t row = 0; row < kRows; ++row) {
    bool any = false;
    for (int r = 0; r < comm.size(); ++r) {
      std::vector<int64_t> theirs = rows_of(r, turn);
      any = any || std::find(theirs.begin(), theirs.end(), static_cast<int64_t>(row)) != theirs.end();
    }
    if (any) expected.push_back(static_cast<int64_t>(row));
  }
  ASSERT_EQ(sum.rows, expected);
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(std::memcmp(&sum.values[i * kWidth], &dense[static_cast<size_t>(expected[i]) * kWidth],
                          kWidth * sizeof(float)),
              0)
        << "row " << expected[i];
  }
}

TEST_P(Sparse, HasTheBitsOfTheDenseSum) {
  test::on_group(GetParam(), [](Communicator& comm) {
    for (int turn : {0, 1}) {
      check(comm, DS_DTYPE_F32, DS_DTYPE_I64, ReduceOp::sum, turn);
      check(comm, DS_DTYPE_BF16, DS_DTYPE_I32, ReduceOp::mean, turn);
    }
    SparseRows none =
        sparse_all_reduce(comm, nullptr, DS_DTYPE_I32, nullptr, DS_DTYPE_F32, 0, kWidth, 4, "none");
    EXPECT_TRUE(none.rows.empty() && none.values.empty());
  });
}

TEST_P(Sparse, ReceivesOnlyWhatIsGiven) {
  test::on_group(GetParam(), [](Communicator& comm) {
    int64_t row = comm.rank() * 100000;
    std::vector<float> values(kWidth, 1.f);
    sparse_all_reduce(comm, &row, DS_DTYPE_I64, values.data(), DS_DTYPE_F32, 1, kWidth, 1, "one row");
    auto others = static_cast<int64_t>(comm.size()) - 1;
    EXPECT_EQ(comm.counts()["all_gather"].bytes, 8 * others);
    EXPECT_EQ(comm.counts()["all_gather_v"].bytes, (8 + static_cast<int64_t>(kWidth) * 4) * others);
  });
}

TEST_P(Sparse, RefusesTheSameOnEveryRank) {
  test::on_group(GetParam(), [](Communicator& comm) {
    bool last = comm.rank() == comm.size() - 1;
    auto give = [&](std::vector<int64_t> rows, size_t bound) {
      std::vector<float> values(rows.size());
      return test::message_of(
          [&] {
            sparse_all_reduce(comm, rows.data(), DS_DTYPE_I64, values.data(), DS_DTYPE_F32, rows.size(), 1,
                              bound, "wte");
          },
          DS_ERROR_INVALID_ARGUMENT);
    };
    std::string rank = "rank " + std::to_string(comm.size() - 1);
    test::expect_names(give(last ? std::vector<int64_t>{1, 2, 3} : std::vector<int64_t>{1}, 2),
                       {"'wte'", "bound is 2 rows", rank + " gives 3"});
    test::expect_names(give(last ? std::vector<int64_t>{4, 4} : std::vector<int64_t>{1}, 2),
                       {rank + " are not strictly ascending"});
    comm.barrier("the group is usable");
  });
}

INSTANTIATE_TEST_SUITE_P(All, Sparse, testing::ValuesIn(test::group_cases()), test::group_name);

}  // namespace
}  // namespace ds
