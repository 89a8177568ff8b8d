// Tests packed rows of tables: which rows are sent, that their sums have the bits of whole
// reductions, and that all kernels have equal bits.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "core/program/levels.h"
#include "core/program/rows.h"
#include "kernels/formulas/rank_order.h"
#include "support/conformance.h"

namespace ds::test {
namespace {

struct Packed {
  Tensor rows, numbers;
};

Tensor poisoned(DType dtype, std::vector<int64_t> dims) {
  Tensor t(dtype, std::move(dims));
  t.poison();
  return t;
}

// Returns the tensors joined one after the other.
Tensor joined(const std::vector<const Tensor*>& parts) {
  std::vector<int64_t> dims = parts[0]->dims();
  dims[0] *= static_cast<int64_t>(parts.size());
  Tensor all(parts[0]->dtype(), dims);
  std::byte* at = all.bytes().data();
  for (const Tensor* part : parts) {
    std::memcpy(at, part->bytes().data(), part->bytes().size());
    at += part->bytes().size();
  }
  return all;
}

// Returns a gradient like that of embedding_dw: random rows for the ids that occur, +0 elsewhere.
// One in eight elements of these rows is -0; sums of the others are rounded in f32.
Tensor leaf_of(DType dtype, int64_t height, int64_t width, const Tensor& ids, uint64_t seed) {
  Tensor table = random_tensor(DS_DTYPE_F32, {height, width}, seed);
  std::set<int64_t> named;
  for (int64_t i = 0; i < ids.numel(); ++i) named.insert(static_cast<int64_t>(ids.at(i)));
  for (int64_t e = 0; e < table.numel(); ++e) {
    bool given = named.count(e / width) != 0;
    table.set(e, given ? table.at(e) * std::ldexp(1.0003, static_cast<int>(-e % 7)) : 0);
    if (given && e % 8 == 3) table.set(e, -0.0);
  }
  return table.as(dtype);
}

class RowTable : public testing::Test {
 protected:
  void SetUp() override {
    register_cpu(cpu_);
    register_ref(ref_);
  }

  // Runs the reference and checks that the optimized kernel has the same bits with any team.
  std::vector<Tensor> run(const InstructionCase& c) {
    std::vector<Tensor> want = run_case(implementation(ref_, c.op, "ref"), c, one_);
    EXPECT_TRUE(run_case(implementation(cpu_, c.op, "cpu"), c, one_) == want)
        << c.op << c.attrs.print();
    EXPECT_TRUE(run_case(implementation(cpu_, c.op, "cpu"), c, three_) == want)
        << c.op << c.attrs.print();
    return want;
  }
  Packed pack(const Tensor& table, const Tensor& ids, int64_t room, bool absent = false) {
    InstructionCase c{
        "pack_rows",
        {},
        {table, ids},
        {poisoned(table.dtype(), {room, table.dims()[1]}), poisoned(DS_DTYPE_I32, {room})}};
    c.scalars.absent = absent;
    std::vector<Tensor> out = run(c);
    return {out[0], out[1]};
  }
  // Returns elements [first, first + count) of the sum of the ranks' packed rows, in the rank order
  // of the levels.
  Tensor sum(const std::vector<Packed>& ranks, const std::vector<int>& levels, int64_t first,
             int64_t count) {
    RankLevels nested(levels);
    std::vector<const Tensor*> rows(ranks.size()), numbers(ranks.size());
    for (size_t r = 0; r < ranks.size(); ++r) {
      auto place = static_cast<size_t>(nested.part_of(static_cast<int>(r), nested.depth()));
      rows[place] = &ranks[r].rows;
      numbers[place] = &ranks[r].numbers;
    }
    Attrs attrs{{"ranks", static_cast<int64_t>(ranks.size())}, {"first", first}};
    if (nested.depth() > 1) attrs.set("levels", nested.sizes());
    return run(
        {"sum_rows", attrs, {joined(rows), joined(numbers)}, {poisoned(DS_DTYPE_F32, {count})}})[0];
  }

  KernelRegistry cpu_, ref_;
  ThreadTeam one_{1}, three_{3};
};

// Returns the sum of whole tables over ranks: neighbours first; the last of an odd number is
// carried up.
std::vector<float> sum_of_whole(std::vector<std::vector<float>> level) {
  while (level.size() > 1) {
    std::vector<std::vector<float>> next;
    for (size_t i = 0; i < level.size(); i += 2) {
      next.push_back(level[i]);
      for (size_t e = 0; i + 1 < level.size() && e < next.back().size(); ++e)
        next.back()[e] += level[i + 1][e];
    }
    level = std::move(next);
  }
  return level[0];
}

std::vector<float> floats(const Tensor& t) {
  std::vector<float> out;
  for (int64_t e = 0; e < t.numel(); ++e) out.push_back(static_cast<float>(t.at(e)));
  return out;
}

TEST_F(RowTable, PacksDistinctRowsInOrder) {
  for (DType type : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16}) {
    Tensor table = random_tensor(type, {131, 37}, 1), ids(DS_DTYPE_I32, {9});
    const int32_t named[] = {130, 4, 64, 4, 63, 0, 130, 64, 4};
    for (int64_t i = 0; i < 9; ++i) ids.set(i, named[i]);
    Packed p = pack(table, ids, 9);
    const int32_t want[] = {0, 4, 63, 64, 130, kNoRow, kNoRow, kNoRow, kNoRow};
    for (int64_t k = 0; k < 9; ++k) {
      EXPECT_EQ(p.numbers.at(k), want[k]) << k;
      for (int64_t c = 0; c < 37; ++c)
        EXPECT_EQ(p.rows.at(k * 37 + c), k < 5 ? table.at(want[k] * 37 + c) : 0) << k;
    }
  }
}

TEST_F(RowTable, PacksOneRowAndAllRows) {
  Tensor table = random_tensor(DS_DTYPE_F32, {70, 300}, 2), same(DS_DTYPE_I32, {50}),
         all(DS_DTYPE_I32, {90});
  for (int64_t i = 0; i < 50; ++i) same.set(i, 69);
  for (int64_t i = 0; i < 90; ++i) all.set(i, static_cast<double>(i * 11 % 70));
  Packed one = pack(table, same, 50), every = pack(table, all, 70);
  EXPECT_EQ(one.numbers.at(0), 69);
  EXPECT_EQ(one.numbers.at(1), kNoRow);
  EXPECT_TRUE(every.rows == table);
  for (int64_t k = 0; k < 70; ++k) EXPECT_EQ(every.numbers.at(k), k);
}

TEST_F(RowTable, ARankWithoutDataSendsNoRows) {
  Tensor table = random_tensor(DS_DTYPE_F32, {20, 8}, 3), ids(DS_DTYPE_I32, {6});
  // A rank without data must not read its ids.
  ids.poison();
  Packed p = pack(table, ids, 6, true);
  EXPECT_TRUE(p.rows == Tensor(DS_DTYPE_F32, {6, 8}));
  for (int64_t k = 0; k < 6; ++k) EXPECT_EQ(p.numbers.at(k), kNoRow);
}

TEST_F(RowTable, TooManyIdsAreNamed) {
  Tensor table(DS_DTYPE_F32, {20, 8}), ids(DS_DTYPE_I32, {6});
  for (int64_t i = 0; i < 6; ++i) ids.set(i, static_cast<double>(i));
  InstructionCase c{
      "pack_rows", {}, {table, ids}, {Tensor(DS_DTYPE_F32, {5, 8}), Tensor(DS_DTYPE_I32, {5})}};
  for (KernelRegistry* registry : {&cpu_, &ref_}) {
    const KernelImpl& impl = implementation(*registry, c.op, registry == &cpu_ ? "cpu" : "ref");
    EXPECT_THROW(run_case(impl, c, one_), std::exception) << impl.name;
  }
}

// Covers every part of a partition, widths with tails, rows that one, some or all ranks have, and
// zeros of both signs.
TEST_F(RowTable, SumsHaveTheSameBitsAsSumsOfWholeTables) {
  const std::vector<std::vector<int>> nests = {{1},    {2},    {3},    {5},      {8},
                                               {2, 2}, {4, 2}, {2, 3}, {2, 2, 2}};
  for (const std::vector<int>& levels : nests) {
    int64_t ranks = RankLevels(levels).ranks();
    for (auto [height, width] : {std::pair<int64_t, int64_t>{41, 24}, {9, 300}, {7, 257}}) {
      for (DType type : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16}) {
        std::vector<Packed> packed;
        std::vector<std::vector<float>> whole;
        int64_t padded = (height * width / (ranks * 256) + 1) * ranks * 256;
        for (int64_t r = 0; r < ranks; ++r) {
          auto seed = static_cast<uint64_t>(100 * ranks + 10 * width + r);
          Tensor ids = random_ids(6, r % 3 == 2 ? 2 : height, seed);
          Tensor leaf = leaf_of(type, height, width, ids, seed + 1);
          packed.push_back(pack(leaf, ids, 6, r == 4));
          whole.push_back(r == 4 ? std::vector<float>(static_cast<size_t>(height * width))
                                 : floats(leaf));
          whole.back().resize(static_cast<size_t>(padded));
        }
        std::vector<float> want = sum_of_whole(whole);
        int64_t part = padded / ranks;
        for (int64_t r = 0; r < ranks; ++r) {
          std::vector<float> got = floats(sum(packed, levels, r * part, part));
          EXPECT_EQ(std::memcmp(got.data(), want.data() + r * part, got.size() * sizeof(float)), 0)
              << fmt::format("{}", fmt::join(levels, "x")) << ", width " << width << ", part " << r;
        }
        EXPECT_EQ(floats(sum(packed, levels, 0, padded)), want);
      }
    }
  }
}

TEST_F(RowTable, NanAndInfinityAreSent) {
  Tensor table = random_tensor(DS_DTYPE_F32, {30, 20}, 5), ids(DS_DTYPE_I32, {2}),
         other(DS_DTYPE_I32, {2});
  ids.set(0, 7), ids.set(1, 21), other.set(0, 3), other.set(1, 29);
  table.set(7 * 20 + 5, std::nan(""));
  table.set(21 * 20 + 19, -std::numeric_limits<double>::infinity());
  Tensor y = sum({pack(table, other, 2), pack(table, ids, 2)}, {2}, 0, 600);
  for (int64_t e = 0; e < 600; ++e) {
    EXPECT_EQ(std::isnan(y.at(e)), e == 7 * 20 + 5) << e;
    EXPECT_EQ(std::isinf(y.at(e)), e == 21 * 20 + 19) << e;
  }
}

TEST(RankOrder, FollowsTheLevels) {
  for (const std::vector<int>& sizes :
       {std::vector<int>{6}, {2, 3}, {4, 2}, {2, 2, 4}, {16, 4, 2, 3}}) {
    RankLevels levels(sizes);
    RankOrder order(Attrs{{"levels", levels.sizes()}});
    for (int r = 0; r < levels.ranks(); ++r)
      EXPECT_EQ(order.place(r), levels.part_of(r, levels.depth())) << r;
  }
  EXPECT_EQ(RankOrder(Attrs{}).place(5), 5);
  EXPECT_THROW(RankOrder(Attrs{{"levels", "4x2"}}), std::exception);
}

}  // namespace
}  // namespace ds::test
