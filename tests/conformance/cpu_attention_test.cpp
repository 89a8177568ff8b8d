// Tests attention over several blocks of keys, sequences too long for one pass, and extreme scores.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "support/conformance.h"

namespace ds::test {
namespace {

// Returns, for each row, the first row of its document, for consecutive documents of these lengths.
Tensor begins(const std::vector<int64_t>& lengths) {
  Tensor begin(DS_DTYPE_I32, {std::accumulate(lengths.begin(), lengths.end(), int64_t{0})});
  int64_t row = 0;
  for (int64_t length : lengths) {
    for (int64_t first = row; row < first + length; ++row)
      begin.set(row, static_cast<double>(first));
  }
  return begin;
}

class CpuAttention : public testing::Test {
 protected:
  void SetUp() override {
    register_cpu(cpu_);
    register_ref(ref_);
  }
  const KernelImpl& cpu(const char* op) { return implementation(cpu_, op, "cpu"); }
  // Returns a forward and a backward case, with statistics from an f64 run of the reference.
  std::vector<OpCase> cases(int64_t rows, int64_t heads, int64_t depth, int64_t seq) {
    Attrs attrs{{"heads", heads}, {"seq", seq}};
    int64_t width = heads * depth;
    OpCase forward{"attention", attrs, {random_tensor(DS_DTYPE_F64, {rows, 3 * width}, 1)}};
    std::vector<Tensor> y =
        run_case(implementation(ref_, "attention", "ref"), forward, DS_DTYPE_F64, one_);
    OpCase backward{"attention_dx",
                    attrs,
                    {random_tensor(DS_DTYPE_F64, {rows, width}, 2), forward.in[0], y[0], y[1]}};
    return {forward, backward};
  }
  // Returns a forward and a backward case with 4 heads of 20 columns. If `groups` is 0, q, k and v
  // are packed into one tensor, or else they are separate and have that many key heads. If masked,
  // a third of all keys, including key 0, and all keys of the second sequence are hidden. With the
  // attribute `documents`, the rows form documents instead.
  std::vector<OpCase> cases_with(int64_t rows, int64_t seq, int64_t groups, bool masked,
                                 Attrs attrs) {
    constexpr int64_t kHeads = 4, kDepth = 20;
    attrs.set("heads", kHeads);
    attrs.set("seq", seq);
    if (groups) attrs.set("kv_heads", groups);
    std::vector<Tensor> in{
        random_tensor(DS_DTYPE_F64, {rows, (groups ? 1 : 3) * kHeads * kDepth}, 1)};
    for (uint64_t i = 2; groups && i < 4; ++i) {
      in.push_back(random_tensor(DS_DTYPE_F64, {rows, groups * kDepth}, i));
    }
    if (masked && attrs.has("documents")) {
      in.push_back(begins({1, 40, 150, 16, 2, 141, rows - 350}));
    } else if (masked) {
      in.push_back(Tensor(DS_DTYPE_I32, {rows}));
      for (int64_t r = 0; r < rows; ++r) in.back().set(r, r % 3 != 0 && r / seq != 1);
    }
    OpCase forward{"attention", attrs, in};
    std::vector<Tensor> y =
        run_case(implementation(ref_, "attention", "ref"), forward, DS_DTYPE_F64, one_);
    in.insert(in.begin(), random_tensor(DS_DTYPE_F64, y[0].dims(), 4));
    in.insert(in.end(), y.begin(), y.end());
    return {forward, OpCase{"attention_dx", attrs, in}};
  }
  // Returns cases of all forms with two blocks of keys. The last sequence is short and ends inside
  // a strip.
  std::vector<OpCase> forms() {
    std::vector<OpCase> all;
    auto add = [&](int64_t groups, bool masked, const Attrs& attrs) {
      for (OpCase& c : cases_with(350, 170, groups, masked, attrs)) all.push_back(std::move(c));
    };
    add(2, false, {});
    add(1, false, {{"window", int64_t{5}}});
    add(4, true, {{"window", int64_t{131}}});
    add(0, false, {{"causal", int64_t{0}}});
    add(2, true, {{"causal", int64_t{0}}, {"scale", 0.5}});
    add(2, true, {{"softcap", 0.75}, {"window", int64_t{140}}});
    add(0, true, {{"per_head", int64_t{1}}, {"softcap", 50.0}});
    const Attrs::Value stream = int64_t{40000};
    add(2, true, {{"causal", int64_t{0}}, {"dropout", 0.1}, {"op", stream}});
    add(0, false, {{"dropout", 0.5}, {"op", stream}, {"softcap", 2.0}});
    add(1, false, {{"window", int64_t{33}}, {"dropout", 0.3}, {"op", stream}});
    const Attrs::Value yes = int64_t{1};
    add(2, true, {{"documents", yes}});
    add(0, true, {{"documents", yes}, {"per_head", yes}, {"softcap", 2.0}});
    add(1, true, {{"documents", yes}, {"window", int64_t{33}}});
    add(4, true, {{"documents", yes}, {"dropout", 0.3}, {"op", stream}, {"window", int64_t{131}}});
    return all;
  }
  KernelRegistry cpu_, ref_;
  ThreadTeam one_{1}, three_{3};
};

TEST_F(CpuAttention, EveryFormWorksOverBlocksOfKeys) {
  for (const OpCase& c : forms()) {
    for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16}) {
      Deviation d = deviation(cpu(c.op.c_str()), c, dtype, three_);
      EXPECT_LT(d.error, kMostUnits) << c.label() << " " << dtype_name(dtype) << " " << d.where;
    }
    EXPECT_TRUE(run_case(cpu(c.op.c_str()), c, DS_DTYPE_BF16, three_) ==
                run_case(cpu(c.op.c_str()), c, DS_DTYPE_BF16, one_))
        << c.label();
  }
}

// Runs forward and backward kernels of one family and returns the gradients of q, k and v.
std::vector<Tensor> gradients(const KernelRegistry& registry, const char* family,
                              const OpCase& forward, const Tensor& dy, DType dtype,
                              ThreadTeam& team) {
  std::vector<Tensor> y =
      run_case(implementation(registry, "attention", family), forward, dtype, team);
  OpCase backward{"attention_dx", forward.attrs, {dy}};
  backward.in.insert(backward.in.end(), forward.in.begin(), forward.in.end());
  backward.in.insert(backward.in.end(), y.begin(), y.end());
  return run_case(implementation(registry, "attention_dx", family), backward, dtype, team);
}

// A packed document has the same bits as alone in a sequence, in forward and backward and at any
// position, and no values of other documents are read.
TEST_F(CpuAttention, PackedDocumentsHaveTheSameBitsAsAlone) {
  const std::vector<int64_t> lengths{1, 37, 300, 16, 129, 2, 515};
  for (const Attrs& form : {Attrs{}, Attrs{{"window", int64_t{70}}}, Attrs{{"softcap", 2.0}}}) {
    Attrs attrs = form;
    attrs.set("heads", int64_t{4});
    attrs.set("kv_heads", int64_t{2});
    attrs.set("seq", int64_t{515});
    OpCase alone{"attention", attrs, {}};
    attrs.set("documents", int64_t{1});
    OpCase packed{
        "attention", attrs, {random_tensor(DS_DTYPE_F64, {1000, 160}, 1), begins(lengths)}};
    Tensor dy = random_tensor(DS_DTYPE_F64, {1000, 80}, 2);
    for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
      std::vector<Tensor> y = run_case(cpu("attention"), packed, dtype, three_);
      std::vector<Tensor> dx = gradients(cpu_, "cpu", packed, dy, dtype, three_);
      int64_t first = 0;
      for (int64_t length : lengths) {
        alone.in = {rows_of(packed.in[0], first, length)};
        std::vector<Tensor> own = run_case(cpu("attention"), alone, dtype, one_);
        std::vector<Tensor> own_dx =
            gradients(cpu_, "cpu", alone, rows_of(dy, first, length), dtype, one_);
        std::string where = packed.label() + " " + dtype_name(dtype) + " " + std::to_string(first);
        EXPECT_TRUE(rows_of(y[0], first, length) == own[0]) << where;
        EXPECT_TRUE(columns_of(y[1], first, length) == own[1]) << where;
        EXPECT_TRUE(rows_of(dx[0], first, length) == own_dx[0]) << where;
        first += length;
      }
    }
  }
}

TEST_F(CpuAttention, EveryFormWorksInTwoPasses) {
  // The buffers of one block with depth 20 need 251 KiB; dq needs 16 KiB more for one block and 21
  // KiB more for one head.
  ThreadTeam small(2, 268 << 10);
  for (const OpCase& c : forms()) {
    if (c.op != "attention_dx") continue;
    EXPECT_TRUE(run_case(cpu("attention_dx"), c, DS_DTYPE_F32, small) ==
                run_case(cpu("attention_dx"), c, DS_DTYPE_F32, one_))
        << c.label();
  }
}

// Returns a case with 2 heads of 20 columns, one row at each position in `places`, and a cache with
// one key head.
OpCase cached_case(int64_t capacity, const std::vector<int64_t>& places, Attrs attrs) {
  constexpr int64_t kHeads = 2, kDepth = 20;
  auto rows = static_cast<int64_t>(places.size());
  attrs.set("heads", kHeads);
  attrs.set("kv_heads", int64_t{1});
  Tensor positions(DS_DTYPE_I32, {rows});
  for (int64_t r = 0; r < rows; ++r)
    positions.set(r, static_cast<double>(places[static_cast<size_t>(r)]));
  return {"cached_attention",
          attrs,
          {random_tensor(DS_DTYPE_F64, {rows, (kHeads + 2) * kDepth}, 1), positions,
           random_tensor(DS_DTYPE_F64, {2, capacity, kDepth}, 2)}};
}

TEST_F(CpuAttention, CachesMayHaveManyBlocksOfKeys) {
  for (const Attrs& attrs : {Attrs{}, Attrs{{"window", int64_t{1500}}}, Attrs{{"softcap", 0.75}}}) {
    OpCase c = cached_case(4000, {0, 1022, 1023, 1024, 2047, 2048, 3999}, attrs);
    for (int64_t e = 0; e < 20; ++e)
      // The largest score comes late in the cache.
      c.in[2].set(3500 * 20 + e, 16 * c.in[2].at(e));
    for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16}) {
      Deviation d = deviation(cpu("cached_attention"), c, dtype, three_);
      EXPECT_LT(d.error, kMostUnits) << c.label() << " " << dtype_name(dtype) << " " << d.where;
    }
    EXPECT_TRUE(run_case(cpu("cached_attention"), c, DS_DTYPE_BF16, three_) ==
                run_case(cpu("cached_attention"), c, DS_DTYPE_BF16, one_));
  }
}

// A row has the same bits as alone, no matter how a text is divided into chunks.
TEST_F(CpuAttention, CachedRowsDoNotDependOnTheirChunk) {
  OpCase both = cached_case(3000, {2500, 2501}, {}), last = both;
  std::vector<Tensor> want = run_case(cpu("cached_attention"), both, DS_DTYPE_F32, one_);
  last.in[0] = Tensor(DS_DTYPE_F64, {1, 80});
  last.in[1] = Tensor(DS_DTYPE_I32, {1});
  last.in[2] = want[1];
  for (int64_t e = 0; e < 80; ++e) last.in[0].set(e, both.in[0].at(80 + e));
  last.in[1].set(0, 2501);
  std::vector<Tensor> got = run_case(cpu("cached_attention"), last, DS_DTYPE_F32, one_);
  for (int64_t e = 0; e < 40; ++e) ASSERT_EQ(got[0].at(e), want[0].at(40 + e)) << e;
}

TEST_F(CpuAttention, CachesHaveNoLimitOfPositions) {
  ThreadTeam small(2, 8 << 10);
  OpCase c = cached_case(5000, {4999}, {});
  EXPECT_TRUE(run_case(cpu("cached_attention"), c, DS_DTYPE_F32, small) ==
              run_case(cpu("cached_attention"), c, DS_DTYPE_F32, one_));
  EXPECT_TRUE(run_case(implementation(ref_, "cached_attention", "ref"), c, DS_DTYPE_F32, small) ==
              run_case(implementation(ref_, "cached_attention", "ref"), c, DS_DTYPE_F32, one_));
}

TEST_F(CpuAttention, RowsThatSeeNothingAreZero) {
  for (const KernelRegistry* registry : {&cpu_, &ref_}) {
    const char* family = registry == &cpu_ ? "cpu" : "ref";
    for (int64_t causal : {0, 1}) {
      std::vector<OpCase> both = cases_with(70, 40, 2, true, {{"causal", causal}});
      std::vector<Tensor> y =
          run_case(implementation(*registry, "attention", family), both[0], DS_DTYPE_F32, one_);
      std::vector<Tensor> dx =
          run_case(implementation(*registry, "attention_dx", family), both[1], DS_DTYPE_F32, one_);
      for (int64_t r = 0; r < 70; ++r) {
        if (r < 40 && !(r == 0 && causal)) continue;
        for (int64_t e = 0; e < 80; ++e) {
          ASSERT_EQ(y[0].at(r * 80 + e), 0) << family << " row " << r;
          ASSERT_EQ(dx[0].at(r * 80 + e), 0) << family << " row " << r;
        }
        for (int64_t h = 0; h < 4; ++h) ASSERT_EQ(y[1].at(h * 70 + r), 0) << family << " row " << r;
      }
      EXPECT_NE(y[0].at(80), 0);
    }
  }
}

// A row that sees only one key has a gradient of exactly 0 for q and k, and passes dy on to v.
TEST_F(CpuAttention, RowsThatSeeOneKeyGiveNoGradientToScores) {
  constexpr int64_t kRows = 60, kSeq = 24, kWidth = 80, kHidden = 3;
  struct Form {
    const char* name;
    Attrs attrs;
    // Whether the first keys of each sequence are hidden.
    bool padded;
    // Returns whether row i of a sequence sees only one key.
    int64_t (*alone)(int64_t);
  };
  const Form forms[] = {
      {"causal", {}, false, [](int64_t i) { return int64_t{i == 0}; }},
      {"window",
       {{"window", int64_t{1}}, {"softcap", 2.0}},
       false,
       [](int64_t) { return int64_t{1}; }},
      {"padded", {}, true, [](int64_t i) { return int64_t{i == kHidden}; }},
      {"window and padding",
       {{"window", int64_t{2}}},
       true,
       [](int64_t i) { return int64_t{i == kHidden}; }},
      {"one",
       {{"seq", int64_t{1}}, {"causal", int64_t{0}}},
       false,
       [](int64_t) { return int64_t{1}; }},
  };
  for (const Form& form : forms) {
    Attrs attrs = form.attrs;
    attrs.set("heads", int64_t{4});
    if (!form.attrs.find("seq")) attrs.set("seq", kSeq);
    OpCase forward{"attention", attrs, {}};
    for (uint64_t i = 1; i < 4; ++i)
      forward.in.push_back(random_tensor(DS_DTYPE_F64, {kRows, kWidth}, i));
    Tensor dy = random_tensor(DS_DTYPE_F64, {kRows, kWidth}, 4), mask(DS_DTYPE_I32, {kRows});
    for (int64_t r = 0; r < kRows; ++r) mask.set(r, r % kSeq >= kHidden);
    if (form.padded) forward.in.push_back(mask);
    for (const KernelRegistry* registry : {&cpu_, &ref_}) {
      const char* family = registry == &cpu_ ? "cpu" : "ref";
      for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16}) {
        std::vector<Tensor> d = gradients(*registry, family, forward, dy, dtype, one_);
        bool all = form.alone(1) && form.alone(2);
        for (int64_t e = 0; e < kRows * kWidth; ++e) {
          std::string place =
              std::string(form.name) + " " + family + " element " + std::to_string(e);
          bool q_rests = form.alone(e / kWidth % kSeq) != 0;
          ASSERT_EQ(q_rests ? d[0].at(e) : 0, 0) << place;
          ASSERT_EQ(all ? d[1].at(e) : 0, 0) << place;
          ASSERT_EQ(all ? d[2].at(e) - dy.at(e) : 0, 0) << place;
        }
        EXPECT_EQ(d[0].at((kHidden + 1) * kWidth) != 0, !all) << form.name << " " << family;
      }
    }
  }
}

// Scores are so far apart that each query puts all its weight on one key, as if it saw no other.
// Rounding errors of equal products must not show as gradients of q and k. v receives dy from the
// queries that chose it.
TEST_F(CpuAttention, RowsWithAllWeightOnOneKeyGiveNoGradientToScores) {
  // The rows form several blocks of keys.
  constexpr int64_t kRows = 300, kWidth = 80, kDepth = 20;
  OpCase forward{"attention", {{"heads", int64_t{4}}, {"seq", kRows}}, {}};
  for (uint64_t i = 1; i < 4; ++i)
    forward.in.push_back(random_tensor(DS_DTYPE_F64, {kRows, kWidth}, i));
  // Each of the first keys of a head has its own direction, and each query points along one of
  // these directions.
  for (int64_t e = 0; e < kRows * kWidth; ++e) {
    int64_t row = e / kWidth, column = e % kDepth;
    forward.in[0].set(e, column == (row * 7) % kDepth ? 64 : 0);
    forward.in[1].set(e, row < kDepth && column == row ? 64 : 0);
  }
  Tensor dy = random_tensor(DS_DTYPE_F64, {kRows, kWidth}, 4);
  for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16}) {
    std::vector<Tensor> d = gradients(cpu_, "cpu", forward, dy, dtype, one_);
    for (int64_t row = kDepth; row < kRows; ++row) {
      for (int64_t c = 0; c < kWidth; ++c)
        ASSERT_EQ(d[0].at(row * kWidth + c), 0) << dtype_name(dtype) << row;
    }
    // Queries in the first rows may not see their key yet and weight all visible keys equally.
    EXPECT_NE(d[0].at(1 * kWidth), 0);
    for (int64_t row = kDepth; row < kRows; ++row) {
      for (int64_t c = 0; c < kWidth; ++c) ASSERT_NE(d[2].at((row % kDepth) * kWidth + c), 0);
    }
  }
}

TEST_F(CpuAttention, MaskedKeysAreNotRead) {
  std::vector<OpCase> both = cases_with(70, 40, 2, true, {{"causal", int64_t{0}}});
  std::vector<OpCase> spoilt = both;
  // Spoils key 3 of both heads, which the mask hides.
  for (int64_t e = 0; e < 40; ++e) {
    for (size_t i : {1, 2}) {
      spoilt[0].in[i].set(3 * 40 + e, std::nan(""));
      spoilt[1].in[i + 1].set(3 * 40 + e, std::nan(""));
    }
  }
  for (size_t i : {0, 1}) {
    EXPECT_TRUE(run_case(cpu(both[i].op.c_str()), both[i], DS_DTYPE_F32, one_) ==
                run_case(cpu(both[i].op.c_str()), spoilt[i], DS_DTYPE_F32, one_))
        << both[i].op;
  }
}

TEST_F(CpuAttention, BlocksOfKeysAreJoined) {
  for (auto [rows, heads, depth, seq] : {std::array<int64_t, 4>{300, 1, 20, 300},
                                         {291, 2, 34, 145},
                                         {290, 2, 33, 145},
                                         {70, 1, 264, 70}}) {
    for (const OpCase& c : cases(rows, heads, depth, seq)) {
      for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16}) {
        Deviation d = deviation(cpu(c.op.c_str()), c, dtype, three_);
        EXPECT_LT(d.error, kMostUnits) << c.label() << " " << dtype_name(dtype) << " " << d.where;
      }
    }
  }
}

TEST_F(CpuAttention, BitsDoNotDependOnTheTeam) {
  for (int64_t depth : {33, 34}) {
    for (const OpCase& c : cases(290, 2, depth, 145)) {
      EXPECT_TRUE(run_case(cpu(c.op.c_str()), c, DS_DTYPE_BF16, three_) ==
                  run_case(cpu(c.op.c_str()), c, DS_DTYPE_BF16, one_))
          << c.label();
    }
  }
}

TEST_F(CpuAttention, SequencesTooLongForScratchUseTwoPasses) {
  // The buffers of one block with depth 32 need 262 to 265 KiB; dq needs 16 KiB more for one block
  // and 75 KiB more for 600 rows.
  ThreadTeam small(2, 290 << 10);
  OpCase c = cases(1200, 1, 32, 600)[1];
  for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16}) {
    EXPECT_TRUE(run_case(cpu("attention_dx"), c, dtype, small) ==
                run_case(cpu("attention_dx"), c, dtype, one_));
  }
}

// Tests the widest heads that fit a thread's scratch memory. With 1,300 columns, dy . y is summed
// in several parts.
TEST_F(CpuAttention, WideHeadsFitTheScratch) {
  for (int64_t depth : {1300, 1780}) {
    OpCase c = cases(40, 1, depth, 32)[1];
    for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16}) {
      Deviation d = deviation(cpu("attention_dx"), c, dtype, one_);
      EXPECT_LT(d.error, 200) << depth << " " << dtype_name(dtype) << " " << d.where;
    }
  }
}

TEST_F(CpuAttention, LargeScoresStayFinite) {
  OpCase c = cases(140, 1, 8, 140)[0];
  for (int64_t e = 0; e < c.in[0].numel(); ++e)
    // Scores reach 8,000.
    c.in[0].set(e, c.in[0].at(e) * 64);
  std::vector<Tensor> y = run_case(cpu("attention"), c, DS_DTYPE_F32, one_);
  for (const Tensor& t : y) {
    for (int64_t e = 0; e < t.numel(); ++e) ASSERT_TRUE(std::isfinite(t.at(e)));
  }
  Deviation d = deviation(cpu("attention"), c, DS_DTYPE_F32, one_);
  // exp amplifies the rounding error of a score by the score's magnitude.
  EXPECT_LT(d.error, 5000) << d.where;
}

TEST_F(CpuAttention, NanPropagatesToTheOutput) {
  OpCase c = cases(20, 1, 8, 20)[0];
  // This is an element of q in row 5.
  c.in[0].set(5 * 24, std::nan(""));
  std::vector<Tensor> y = run_case(cpu("attention"), c, DS_DTYPE_F32, one_);
  EXPECT_TRUE(std::isnan(y[0].at(5 * 8)));
  EXPECT_FALSE(std::isnan(y[0].at(4 * 8)));
}

}  // namespace
}  // namespace ds::test
