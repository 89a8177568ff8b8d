// Tests small products on AMX tiles: each result equals the definition of the instruction bit for
// bit, for any number of rows, columns and pairs, and the kernel reads and writes nothing beyond
// the matrices.
#include "kernels/cpu/tile_product.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/device/cpu_features.h"
#include "support/dice.h"

namespace ds::test {
namespace {

constexpr float kGuard = -77.0f;

class TileProductTest : public testing::Test {
 protected:
  void SetUp() override {
    if (machine_isa() != Isa::amx) GTEST_SKIP() << "this machine has no AMX";
  }
  // Draws two bf16 numbers between -1 and 1, packed into one word.
  float word() {
    auto half = [&] {
      return std::bit_cast<uint32_t>(static_cast<float>(dice_.below(2001)) / 1000.0f - 1.0f) >> 16;
    };
    uint32_t low = half();
    return std::bit_cast<float>(low | half() << 16);
  }

  Dice dice_{20261126};
};

float number_of(float word, bool odd) {
  auto bits = std::bit_cast<uint32_t>(word);
  return std::bit_cast<float>(odd ? bits & 0xffff0000u : bits << 16);
}

// Computes the definition of TDPBF16PS for one element: for each 16 pairs, sums even and odd
// numbers separately, and adds the two sums to the result.
float expected(const cpu::TileProduct& p, int64_t i, int64_t j, float before) {
  float sum = p.add ? before : 0;
  for (int64_t k = 0; k < p.pairs; k += 16) {
    float halves[2] = {0, 0};
    for (int64_t pair = k; pair < std::min(k + 16, p.pairs); ++pair) {
      for (bool odd : {false, true}) {
        halves[odd] = std::fma(number_of(p.a[i * p.a_row + pair], odd),
                               number_of(p.b[pair * p.b_row + j], odd), halves[odd]);
      }
    }
    sum += halves[0] + halves[1];
  }
  return p.scale == 1 ? sum : sum * p.scale;
}

TEST_F(TileProductTest, FollowsTheDefinitionOfTheInstruction) {
  cpu::TileProducts products;
  for (int turn = 0; turn < 400; ++turn) {
    int64_t rows = 1 + dice_.below(16), columns = 16 * (1 + dice_.below(9)),
            pairs = 1 + dice_.below(70);
    int64_t a_row = pairs + dice_.below(5), b_row = columns + dice_.below(20),
            c_row = columns + dice_.below(20);
    // The matrix ends with the last element of its last row.
    std::vector<float> a(static_cast<size_t>((rows - 1) * a_row + pairs));
    std::vector<float> b(static_cast<size_t>((pairs - 1) * b_row + columns));
    std::vector<float> c(static_cast<size_t>(16 * c_row), kGuard);
    for (float& x : a) x = word();
    for (float& x : b) x = word();
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j)
        c[static_cast<size_t>(i * c_row + j)] = static_cast<float>(dice_.below(100));
    }
    const std::vector<float> before = c;
    bool add = dice_.one_in(2);
    cpu::TileProduct p{a.data(),
                       a_row,
                       b.data(),
                       b_row,
                       c.data(),
                       c_row,
                       rows,
                       columns,
                       pairs,
                       add,
                       add || dice_.one_in(2) ? 1.0f : 0.125f};
    products.multiply(p);
    for (int64_t e = 0; e < 16 * c_row; ++e) {
      int64_t i = e / c_row, j = e % c_row;
      float was = before[static_cast<size_t>(e)];
      float want = i < rows && j < columns ? expected(p, i, j, was) : kGuard;
      ASSERT_EQ(c[static_cast<size_t>(e)], want)
          << "turn " << turn << ", element " << i << " " << j << " of " << rows << " x " << columns
          << " x " << pairs;
    }
  }
}

}  // namespace
}  // namespace ds::test
