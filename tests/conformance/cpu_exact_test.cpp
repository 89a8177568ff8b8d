// Tests kernels whose bits must equal the reference's with any instruction set and any team, at
// sizes of several tasks.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>

#include "support/conformance.h"

namespace ds::test {
namespace {

// Three tasks and a tail.
constexpr int64_t kCount = 3 * 16384 + 37;

class Exact : public testing::Test {
 protected:
  void SetUp() override {
    register_cpu(cpu_);
    register_ref(ref_);
  }
  // Returns whether the kernels of both families compute the same bytes, on one and on three
  // threads. `out` holds what update operands contain before the call.
  bool equal(const std::string& op, const Attrs& attrs, const std::vector<Tensor>& in,
             const std::vector<Tensor>& out, const StepScalars& scalars = {}) {
    InstructionCase c{op, attrs, in, out, scalars};
    std::vector<Tensor> want = run_case(implementation(ref_, op, "ref"), c, one_);
    return run_case(implementation(cpu_, op, "cpu"), c, one_) == want &&
           run_case(implementation(cpu_, op, "cpu"), c, three_) == want;
  }
  // Returns whether the results are equal for a parameter that is its own master. `out` then has no
  // separate parameter.
  bool equal_in_place(const std::string& op, const Attrs& attrs, const Tensor& grad,
                      const std::vector<Tensor>& out, const StepScalars& scalars) {
    auto run = [&](const KernelRegistry& registry, const std::string& family) {
      std::vector<Tensor> results = out;
      std::vector<TensorView> in{grad.view()}, views;
      for (const Tensor& tensor : results) views.push_back(tensor.view());
      views.push_back(views.front());
      implementation(registry, op, family).run({in, views, attrs, scalars, 0, one_});
      return results;
    };
    return run(cpu_, "cpu") == run(ref_, "ref");
  }
  static Tensor poisoned(DType dtype, std::vector<int64_t> dims) {
    Tensor t(dtype, std::move(dims));
    t.poison();
    return t;
  }
  // Returns f32 values of every kind: ties of bf16 rounding, subnormal numbers, infinities, numbers
  // that overflow when rounded and, if with_nan is set, NaN.
  static Tensor awkward(bool with_nan) {
    Tensor x(DS_DTYPE_F32, {kCount});
    const double special[] = {
        0.0, -0.0, 1 + 0x1p-8, 1 + 0x1.8p-7, 1 + 0x1.01p-8, 0x1p-149, 0x1.fep-130, 3.4e38,
        -3.4028234e38, std::numeric_limits<double>::infinity(),
        -std::numeric_limits<double>::infinity(),
        // Limits of f16: the largest number, ties at infinity and at 0, subnormal numbers.
        65504, 65519.99, 65520, -65520, 0x1p-25, 0x1.8p-24, -0x1.ffcp-15, 0x1.ffep-15};
    Tensor random = random_tensor(DS_DTYPE_F32, {kCount}, 3);
    for (int64_t e = 0; e < kCount; ++e) {
      x.set(e, e % 3 == 0 ? special[e / 3 % static_cast<int64_t>(std::size(special))]
                          : random.at(e) * std::ldexp(1.0003, static_cast<int>(e % 60) - 30));
    }
    if (with_nan) x.set(kCount - 1, std::nan(""));
    if (with_nan) x.set(5, std::nan(""));
    return x;
  }
  KernelRegistry cpu_, ref_;
  ThreadTeam one_{1}, three_{3};
};

TEST_F(Exact, CastsEqualTheReference) {
  for (DType to : {DS_DTYPE_BF16, DS_DTYPE_F16, DS_DTYPE_F32}) {
    Attrs attrs{{"dtype", dtype_name(to)}};
    EXPECT_TRUE(equal("cast", attrs, {awkward(true)}, {poisoned(to, {kCount})})) << dtype_name(to);
    for (DType from : {DS_DTYPE_BF16, DS_DTYPE_F16})
      EXPECT_TRUE(equal("cast", attrs, {awkward(false).as(from)}, {poisoned(to, {kCount})}))
          << dtype_name(to);
  }
}

TEST_F(Exact, AccumulationsEqualTheReference) {
  Tensor acc = random_tensor(DS_DTYPE_F32, {kCount}, 8);
  for (DType from : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16}) {
    Tensor x = awkward(false).as(from);
    EXPECT_TRUE(
        equal("accumulate", {{"beta", int64_t{0}}}, {x}, {poisoned(DS_DTYPE_F32, {kCount})}));
    EXPECT_TRUE(equal("accumulate", {{"beta", int64_t{1}}}, {x}, {acc}));
    for (DType sum : {DS_DTYPE_BF16, DS_DTYPE_F16}) {
      EXPECT_TRUE(equal("accumulate", {{"beta", int64_t{0}}}, {x}, {poisoned(sum, {kCount})}));
      EXPECT_TRUE(equal("accumulate", {{"beta", int64_t{1}}}, {x}, {acc.as(sum)}));
    }
  }
}

TEST_F(Exact, ZeroClearsAnyType) {
  for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16, DS_DTYPE_I32, DS_DTYPE_U8}) {
    EXPECT_TRUE(equal("zero", {}, {}, {poisoned(dtype, {(1 << 20) + 3})})) << dtype_name(dtype);
  }
}

TEST_F(Exact, ZeroClearsEveryOutput) {
  EXPECT_TRUE(equal("zero", {}, {}, {poisoned(DS_DTYPE_F32, {7}), poisoned(DS_DTYPE_F32, {300})}));
}

TEST_F(Exact, GranuleNormsEqualTheReference) {
  for (int64_t granules : {1, 7, 8, 64, 203}) {
    for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16}) {
      for (int64_t granule : {256, 5000}) {
        Tensor grad = random_tensor(DS_DTYPE_F32, {granule * granules}, 5).as(dtype);
        EXPECT_TRUE(equal("granule_norms", {}, {grad}, {Tensor(DS_DTYPE_F64, {granules})}))
            << granules;
      }
    }
  }
}

TEST_F(Exact, AdamwEqualsTheReference) {
  auto random = [](uint64_t seed) { return random_tensor(DS_DTYPE_F32, {kCount}, seed); };
  Tensor second = random(4);
  for (int64_t e = 0; e < kCount; ++e) second.set(e, std::abs(second.at(e)) * 1.00017e-3);
  StepScalars scalars;
  scalars.group = {.lr = 3.1e-4, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
  scalars.updates = 2;
  scalars.grad_scale = 0.37;
  for (DType param : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16}) {
    for (int64_t l2 : {0, 1}) {
      Attrs attrs{{"l2", l2}};
      EXPECT_TRUE(equal("adamw", attrs, {awkward(false)},
                        {random(2), random(3), second, poisoned(param, {kCount})}, scalars))
          << dtype_name(param) << " l2 " << l2;
    }
  }
}

TEST_F(Exact, SgdEqualsTheReference) {
  StepScalars scalars;
  scalars.group = {.lr = 3.1e-2, .weight_decay = 0.1, .momentum = 0.9};
  scalars.grad_scale = 0.37;
  for (DType param : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16}) {
    for (int64_t nesterov : {0, 1}) {
      Attrs attrs{{"nesterov", nesterov}};
      EXPECT_TRUE(equal("sgd", attrs, {awkward(false)},
                        {random_tensor(DS_DTYPE_F32, {kCount}, 2),
                         random_tensor(DS_DTYPE_F32, {kCount}, 3), poisoned(param, {kCount})},
                        scalars))
          << dtype_name(param) << " nesterov " << nesterov;
    }
  }
}

TEST_F(Exact, LionAndAdagradEqualTheReference) {
  StepScalars scalars;
  scalars.group = {.lr = 3.1e-2, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-6};
  scalars.grad_scale = 0.37;
  Tensor squares = random_tensor(DS_DTYPE_F32, {kCount}, 3);
  for (int64_t e = 0; e < kCount; ++e) squares.set(e, std::abs(squares.at(e)));
  for (DType param : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
    for (int64_t updates : {0, 5}) {
      scalars.updates = updates;
      std::vector<Tensor> out{random_tensor(DS_DTYPE_F32, {kCount}, 2),
                              random_tensor(DS_DTYPE_F32, {kCount}, 3), poisoned(param, {kCount})};
      EXPECT_TRUE(equal("lion", {}, {awkward(false)}, out, scalars)) << dtype_name(param);
      out[1] = squares;
      Attrs attrs{{"lr_decay", 0.3}, {"initial", 0.1}};
      EXPECT_TRUE(equal("adagrad", attrs, {awkward(false)}, out, scalars)) << dtype_name(param);
    }
  }
}

// Masters and states are bf16, rounded to nearest or stochastically. The first element is not
// aligned to a vector.
TEST_F(Exact, UpdatesInBf16EqualTheReference) {
  StepScalars scalars;
  scalars.group = {
      .lr = 3.1e-2, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-6, .momentum = 0.9};
  scalars.grad_scale = 0.37;
  scalars.updates = 3;
  scalars.seed = 0x123456789abcdefull;
  scalars.step = 5;
  scalars.param = 3;
  scalars.element = 512 + 7;
  auto random = [](uint64_t seed, DType type) {
    Tensor t = random_tensor(DS_DTYPE_F32, {kCount}, seed);
    for (int64_t e = 0; e < kCount; ++e) t.set(e, std::abs(t.at(e)));
    return t.as(type);
  };
  for (int64_t stochastic : {0, 1}) {
    for (DType master : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
      for (DType state : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
        for (const char* op : {"adamw", "sgd", "lion", "adagrad"}) {
          Attrs attrs{{"l2", int64_t{0}}, {"nesterov", int64_t{1}}, {"stochastic", stochastic}};
          std::vector<Tensor> out{random(2, master), random(3, state)};
          if (std::string(op) == "adamw") out.push_back(random(4, state));
          out.push_back(poisoned(DS_DTYPE_BF16, {kCount}));
          EXPECT_TRUE(equal(op, attrs, {awkward(false)}, out, scalars))
              << op << " " << dtype_name(master) << " " << dtype_name(state) << " " << stochastic;
          EXPECT_TRUE(equal(op, attrs, {awkward(false).as(DS_DTYPE_BF16)}, out, scalars))
              << "bf16 gradients " << op << " " << dtype_name(master) << " " << dtype_name(state)
              << " " << stochastic;
        }
      }
    }
  }
}

// Values that rounding, stochastic or to nearest, may carry beyond the largest bf16, next to
// ordinary values in the same vector.
TEST_F(Exact, UpdatesAtTheLimitsOfBf16EqualTheReference) {
  StepScalars scalars;
  scalars.group = {
      .lr = 3.1e-2, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-6, .momentum = 1};
  scalars.updates = 3;
  scalars.seed = 17;
  auto bounds = [](uint64_t seed, DType type) {
    const double special[] = {3.4028234e38, 0x1.fep127,  0x1.fefp127,
                              0x1p127,      0x1.fffp126, std::numeric_limits<double>::infinity()};
    const Tensor pick = random_ids(kCount, 100, seed);
    Tensor t = random_tensor(DS_DTYPE_F32, {kCount}, seed + 1);
    for (int64_t e = 0; e < kCount; ++e) {
      const auto which = static_cast<size_t>(pick.at(e));
      if (which < std::size(special)) t.set(e, t.at(e) < 0 ? -special[which] : special[which]);
    }
    return t.as(type);
  };
  for (int64_t stochastic : {0, 1}) {
    for (DType type : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
      for (const char* op : {"adamw", "sgd", "lion", "adagrad"}) {
        Attrs attrs{{"l2", int64_t{0}}, {"nesterov", int64_t{0}}, {"stochastic", stochastic}};
        std::vector<Tensor> out{bounds(2, type), bounds(4, type)};
        if (std::string(op) == "adamw") out.push_back(bounds(6, type));
        out.push_back(poisoned(DS_DTYPE_BF16, {kCount}));
        EXPECT_TRUE(equal(op, attrs, {bounds(8, DS_DTYPE_F32)}, out, scalars))
            << op << " " << dtype_name(type) << " " << stochastic;
      }
    }
  }
}

// Every combination of types, with any length and any first element. Zeros of both signs, subnormal
// numbers and ties are frequent. Values that rounding by word addition gets wrong are rare, so that
// each is the only one in its vector, and occur in only one operand of an element: if there are two
// NaNs, the compiler chooses which one is kept.
TEST_F(Exact, UpdatesOfEveryTypeAndAlignmentEqualTheReference) {
  const uint32_t plain[] = {0x80000000u, 0u,          1u,          0x80000001u,
                            0x007fffffu, 0x00008000u, 0x3f808000u, 0xbf818000u},
                 rare[] = {0x7fffffffu, 0xffffffffu, 0x7fff8000u, 0x7f800001u, 0xffc00000u,
                           0x7f800000u, 0xff800000u, 0x5effffffu, 0x5f000000u, 0xdf000001u,
                           0x7f7fffffu, 0xff7f8000u, 0x7f7f7fffu};
  constexpr int64_t kApart = 67, kOperands = 4;
  constexpr auto kRare = static_cast<int64_t>(std::size(rare));
  const auto operand = [&](int64_t which, int64_t count, DType type) {
    Tensor t = random_tensor(DS_DTYPE_F32, {count}, static_cast<uint64_t>(which + 1));
    for (int64_t e = 0; e < count; ++e) {
      const int64_t turn = e / kApart;
      float& x = t.view().as<float>()[e];
      if (e % 3 == which) x = std::bit_cast<float>(plain[(e / 3 + which) % std::ssize(plain)]);
      if (e % kApart == 0 && turn / kRare % kOperands == which)
        x = std::bit_cast<float>(rare[turn % kRare]);
    }
    return type == DS_DTYPE_F32 ? t : t.as(type);
  };
  StepScalars scalars;
  scalars.group = {
      .lr = 3.1e-2, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-6, .momentum = 0.9};
  scalars.updates = 3;
  scalars.seed = 17;
  const auto equal_of = [&](const std::string& op, int64_t count, DType grad, DType master,
                            DType state, int64_t stochastic) {
    const Attrs attrs{{"l2", count % 2}, {"nesterov", int64_t{0}}, {"stochastic", stochastic}};
    const Tensor in = operand(0, count, grad);
    std::vector<Tensor> out{operand(1, count, master), operand(2, count, state)};
    if (op == "adamw") out.push_back(operand(3, count, state));
    bool same = equal_in_place(op, attrs, in, out, scalars);
    for (DType param : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16}) {
      std::vector<Tensor> all = out;
      all.push_back(poisoned(param, {count}));
      same = same && equal(op, attrs, {in}, all, scalars);
    }
    return same;
  };
  const struct {
    int64_t element, count;
  } places[] = {{0, kApart * kRare * kOperands},
                {512 + 7, kApart * kRare * kOperands + 1},
                {33, 1},
                {500, 30},
                {31, 33}};
  for (const char* op : {"adamw", "sgd", "lion", "adagrad"}) {
    for (DType grad : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
      for (DType master : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
        for (DType state : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
          for (int64_t stochastic : {0, 1}) {
            for (const auto& place : places) {
              scalars.element = place.element;
              EXPECT_TRUE(equal_of(op, place.count, grad, master, state, stochastic))
                  << op << " grad " << dtype_name(grad) << " master " << dtype_name(master)
                  << " state " << dtype_name(state) << " stochastic " << stochastic << " from "
                  << place.element;
            }
          }
        }
      }
    }
  }
}

// AdamW with 8-bit moments at the limits: some blocks have a few extreme numbers in masters and
// gradients, NaNs whose sign an addition would change, and divisions of zero by zero.
TEST_F(Exact, CodesAtTheLimitsOfBf16EqualTheReference) {
  constexpr int64_t kBlocks = 150, kElements = 256 * kBlocks;
  const float special[] = {3.4028234e38f,
                           0x1.fep127f,
                           0x1.fefp127f,
                           0x1.fcp127f,
                           std::numeric_limits<float>::infinity(),
                           std::bit_cast<float>(0x7fffffffu)};
  StepScalars scalars;
  scalars.seed = 17;
  scalars.updates = 3;
  // Makes one of `among` elements special in every `apart`-th block from `first` on.
  const auto bounds = [&](uint64_t seed, int64_t among, int64_t first, int64_t apart, DType type) {
    Tensor t = random_tensor(DS_DTYPE_F32, {kElements}, seed);
    const Tensor pick = random_ids(kElements, among, seed + 1);
    for (int64_t e = 0; e < kElements; ++e) {
      const int64_t block = e / 256;
      if (block < first || (block - first) % apart != 0 || pick.at(e) != 0) continue;
      const float x = special[static_cast<size_t>(block / apart) % std::size(special)];
      t.view().as<float>()[e] = e % 3 == 0 ? -x : x;
    }
    return type == DS_DTYPE_F32 ? t : t.as(type);
  };
  const auto bytes = [](int64_t count, int64_t below, uint64_t seed) {
    const Tensor pick = random_ids(count, below, seed);
    Tensor t(DS_DTYPE_U8, {count});
    for (int64_t e = 0; e < count; ++e)
      t.view().as<uint8_t>()[e] = static_cast<uint8_t>(pick.at(e));
    return t;
  };
  for (int64_t l2 : {0, 1}) {
    for (int64_t stochastic : {0, 1}) {
      for (DType master : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
        for (DType grad : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
          for (double eps : {1e-6, 0.0}) {
            // A negative decay makes the largest masters grow so much that most stochastic
            // roundings would carry them beyond bf16.
            const double decay = eps == 0 ? -0.235 : 0.1;
            scalars.group = {
                .lr = 3.1e-2, .weight_decay = decay, .beta1 = 0.9, .beta2 = 0.99, .eps = eps};
            scalars.element = 256 * (l2 + 2 * stochastic);
            Tensor in = bounds(8, 40, 1, 2, grad);
            for (int64_t e = 0; e < 256 && eps == 0; ++e)
              // The moments below are zero as well.
              in.set(e, 0);
            Tensor v = bytes(kElements, 256, 5), m = bytes(kElements, 256, 4);
            for (Tensor* codes : {&m, &v})
              std::fill_n(codes->view().as<uint8_t>(), 256, uint8_t{0});
            const Attrs attrs{{"l2", l2}, {"stochastic", stochastic}};
            EXPECT_TRUE(equal("adamw_codes", attrs, {in},
                              {bounds(2, 60, 0, 2, master), m, bytes(kBlocks, 256, 7), v,
                               bytes(kBlocks, 255, 6), poisoned(DS_DTYPE_BF16, {kElements})},
                              scalars))
                << "l2 " << l2 << " stochastic " << stochastic << " master " << dtype_name(master)
                << " grad " << dtype_name(grad) << " eps " << eps;
          }
        }
      }
    }
  }
}

// A number that stochastic rounding may carry beyond the largest bf16, next to numbers of the
// opposite sign: no sum of them is infinite.
TEST_F(Exact, RoundingNextToTheOppositeSignEqualsTheReference) {
  StepScalars scalars;
  scalars.group = {.lr = 3.1e-2, .momentum = 1};
  scalars.seed = 17;
  Tensor grad = random_tensor(DS_DTYPE_F32, {kCount}, 1);
  const Tensor pick = random_ids(kCount, 16, 2);
  for (int64_t e = 0; e < kCount; ++e) {
    if (pick.at(e) == 0) grad.set(e, e % 3 == 0 ? 0x1.fefp127 : -0x1.fffp126);
  }
  const Attrs attrs{{"nesterov", int64_t{0}}, {"stochastic", int64_t{1}}};
  std::vector<Tensor> out{random_tensor(DS_DTYPE_F32, {kCount}, 3), Tensor(DS_DTYPE_BF16, {kCount}),
                          poisoned(DS_DTYPE_F32, {kCount})};
  EXPECT_TRUE(equal("sgd", attrs, {grad}, out, scalars));
}

TEST_F(Exact, LambEqualsTheReference) {
  StepScalars scalars;
  scalars.group = {.lr = 3.1e-2, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-6};
  scalars.grad_scale = 0.37;
  scalars.updates = 4;
  // Granules of various lengths, including those that vectors and pieces do not divide.
  for (int64_t granule : {256, 1000, 7}) {
    for (int64_t granules : {1, 9, 203}) {
      int64_t count = granule * granules;
      auto random = [&](uint64_t seed) { return random_tensor(DS_DTYPE_F32, {count}, seed); };
      Tensor second = random(4);
      for (int64_t e = 0; e < count; ++e) second.set(e, std::abs(second.at(e)) * 1.00017e-3);
      for (int64_t inside : {0, 1}) {
        Attrs attrs{{"eps_inside_sqrt", inside}, {"bias_correction", inside}};
        EXPECT_TRUE(equal("lamb_moments", attrs, {random(1), random(2)},
                          {random(3), second, poisoned(DS_DTYPE_F64, {2 * granules})}, scalars))
            << granule << " x " << granules;
        for (DType param : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
          EXPECT_TRUE(equal("lamb", attrs,
                            {random(3), second, random_tensor(DS_DTYPE_F32, {granules}, 9)},
                            {random(2), poisoned(param, {count})}, scalars))
              << granule << " x " << granules;
        }
      }
    }
  }
}

TEST_F(Exact, DropoutUsesTheReferencesStream) {
  StepScalars scalars;
  scalars.seed = 0x123456789abcdefull;
  scalars.step = 77;
  Attrs attrs{{"p", 0.37}, {"op", int64_t{0x1f3}}};
  for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16}) {
    Tensor x = random_tensor(dtype, {kCount}, 6);
    scalars.train = 1;
    EXPECT_TRUE(equal("dropout", attrs, {x}, {poisoned(dtype, {kCount})}, scalars));
    scalars.train = 0;
    EXPECT_TRUE(equal("dropout", attrs, {x}, {poisoned(dtype, {kCount})}, scalars));
  }
}

TEST_F(Exact, ElementwiseOpsAndGathersEqualTheReference) {
  for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16}) {
    Tensor x = awkward(false).as(dtype), y = random_tensor(dtype, {kCount}, 9);
    std::vector<Tensor> out{poisoned(dtype, {kCount})};
    EXPECT_TRUE(equal("add", {}, {x, y}, out));
    EXPECT_TRUE(equal("relu", {}, {x}, out));
    EXPECT_TRUE(equal("relu_dx", {}, {y, x}, out));
    EXPECT_TRUE(equal("mul", {}, {x, y}, out));
    EXPECT_TRUE(equal("scale", {{"factor", 0.3}}, {x}, out));
    Tensor rows = random_tensor(dtype, {500, 67}, 10), ids = random_ids(500, 131, 11);
    EXPECT_TRUE(equal("embedding", {}, {rows, ids}, {poisoned(dtype, {500, 67})}));
    EXPECT_TRUE(
        equal("embedding_dw", {{"rows", int64_t{131}}}, {rows, ids}, {poisoned(dtype, {131, 67})}));
    EXPECT_TRUE(equal("embedding_dw",
                      {{"rows", int64_t{131}}, {"padding", static_cast<int64_t>(ids.at(3))}},
                      {rows, ids}, {poisoned(dtype, {131, 67})}));
    Tensor gates = random_tensor(dtype, {500, 5}, 12);
    EXPECT_TRUE(
        equal("scale_rows", {{"column", int64_t{3}}}, {rows, gates}, {poisoned(dtype, {500, 67})}));
    Attrs seq{{"seq", int64_t{9}}};
    EXPECT_TRUE(equal("position", seq, {rows, random_tensor(dtype, {12, 67}, 13)},
                      {poisoned(dtype, {500, 67})}));
    EXPECT_TRUE(equal("position_dw", {{"seq", int64_t{9}}, {"rows", int64_t{12}}}, {rows},
                      {poisoned(dtype, {12, 67})}));
  }
}

// Scratch memory for only 2048 numbers: the table is processed in parts, and one id has more rows
// than a part can hold.
TEST_F(Exact, EmbeddingGradientsBeyondTheScratchEqualTheReference) {
  constexpr int64_t kWords = 5000, kRows = 3000;
  ThreadTeam small(2, 8 << 10);
  Tensor ids = random_ids(kRows, kWords, 21);
  for (int64_t r = 0; r < kRows; r += 2) ids.set(r, 1700);
  for (int64_t padding : {int64_t{-1}, int64_t{1700}, static_cast<int64_t>(ids.at(1))}) {
    Attrs attrs{{"rows", kWords}, {"padding", padding}};
    for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16}) {
      InstructionCase c{"embedding_dw",
                        attrs,
                        {random_tensor(dtype, {kRows, 3}, 20), ids},
                        {poisoned(dtype, {kWords, 3})}};
      EXPECT_TRUE(run_case(implementation(cpu_, c.op, "cpu"), c, small) ==
                  run_case(implementation(ref_, c.op, "ref"), c, one_))
          << dtype_name(dtype) << " padding " << padding;
    }
  }
}

TEST_F(Exact, EmbeddingGradientsOfLargeTablesAreExact) {
  for (auto [words, rows] : {std::pair<int64_t, int64_t>{600000, 40}, {3000000, 40}, {7, 600000}}) {
    Tensor ids = random_ids(rows, words, 22), dy(DS_DTYPE_F32, {rows, 1});
    for (int64_t r = 0; r < rows; ++r) dy.set(r, 1 + static_cast<double>(r % 3));
    for (int64_t r = 0; r < std::min<int64_t>(rows, 10); ++r)
      ids.set(r, static_cast<double>(words - 1 - r % 2));
    InstructionCase c{
        "embedding_dw", {{"rows", words}}, {dy, ids}, {poisoned(DS_DTYPE_F32, {words, 1})}};
    Tensor dw = run_case(implementation(cpu_, c.op, "cpu"), c, three_)[0];
    // The values are small whole numbers, whose sums are exact.
    std::vector<double> want(static_cast<size_t>(words));
    for (int64_t r = 0; r < rows; ++r) want[static_cast<size_t>(ids.at(r))] += dy.at(r);
    for (int64_t v = 0; v < words; ++v)
      ASSERT_EQ(dw.at(v), want[static_cast<size_t>(v)]) << v << " of " << words;
  }
}

}  // namespace
}  // namespace ds::test
