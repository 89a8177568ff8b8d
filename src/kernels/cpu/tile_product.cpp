// Small products of bf16 pairs with AMX, for attention. A product has at most 16 rows, so four
// tiles hold 64 columns of sums. Tiles 4 and 5 hold a step of a and b. If the last step has fewer
// pairs, it uses tiles 6 and 7, which have other dimensions.
#include "kernels/cpu/tile_product.h"

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/amx.h"

namespace ds::cpu {
namespace {

using amx::kSide;

// The number of columns of c that are computed together, in tiles 0 to 3.
constexpr int64_t kColumns = 4 * kSide;

// Multiplies tile kA by kTiles column tiles of b, whose rows are `row` bytes apart, and adds the
// products to tiles 0 to kTiles - 1.
template <int kTiles, int kA, int kB, int kTile = 0>
DS_AMX_INLINE void multiply_step(const float* b, int64_t row) {
  amx::load<kB>(b + kTile * kSide, row);
  amx::multiply<kTile, kA, kB>();
  if constexpr (kTile + 1 < kTiles) multiply_step<kTiles, kA, kB, kTile + 1>(b, row);
}

// Sets tiles 0 to kTiles - 1 to c if `add`, otherwise to 0; store_sums() stores them. Because of
// the recursion, the indices of tiles are constants.
template <int kTiles, int kTile = 0>
DS_AMX_INLINE void begin_sums(const float* c, int64_t row, bool add) {
  add ? amx::load<kTile>(c + kTile * kSide, row) : amx::zero<kTile>();
  if constexpr (kTile + 1 < kTiles) begin_sums<kTiles, kTile + 1>(c, row, add);
}

template <int kTiles, int kTile = 0>
DS_AMX_INLINE void store_sums(float* c, int64_t row) {
  amx::store<kTile>(c + kTile * kSide, row);
  if constexpr (kTile + 1 < kTiles) store_sums<kTiles, kTile + 1>(c, row);
}

// Computes kTiles column tiles of c from column j on.
template <int kTiles>
DS_TARGET_AMX void multiply_columns(const TileProduct& p, int64_t j) {
  const int64_t a_row = p.a_row * 4, b_row = p.b_row * 4, step = kSide * p.b_row,
                steps = p.pairs / kSide;
  const float *a = p.a, *b = p.b + j;
  begin_sums<kTiles>(p.c + j, p.c_row * 4, p.add);
  for (int64_t k = 0; k < steps; ++k, a += kSide, b += step) {
    amx::load<4>(a, a_row);
    multiply_step<kTiles, 4, 5>(b, b_row);
  }
  if (p.pairs % kSide != 0) {
    amx::load<6>(a, a_row);
    multiply_step<kTiles, 6, 7>(b, b_row);
  }
  store_sums<kTiles>(p.c + j, p.c_row * 4);
}

// Computes all columns, four tiles at a time and then the remaining tiles.
DS_TARGET_AMX void multiply_all(const TileProduct& p) {
  int64_t j = 0;
  for (; j + kColumns <= p.columns; j += kColumns) multiply_columns<4>(p, j);
  const int64_t left = p.columns - j;
  if (left == 3 * kSide) multiply_columns<3>(p, j);
  if (left == 2 * kSide) multiply_columns<2>(p, j);
  if (left == kSide) multiply_columns<1>(p, j);
}

// Multiplies c by the scale, which tiles cannot do.
DS_TARGET_AMX void scale_all(const TileProduct& p) {
  const __m512 scale = _mm512_set1_ps(p.scale);
  for (int64_t i = 0; i < p.rows; ++i) {
    float* row = p.c + i * p.c_row;
    for (int64_t j = 0; j < p.columns; j += kSide) {
      _mm512_storeu_ps(row + j, _mm512_mul_ps(_mm512_loadu_ps(row + j), scale));
    }
  }
}

DS_TARGET_AMX void set_up(const amx::Config& config) { amx::configure(config); }
DS_TARGET_AMX void give_back() { amx::release(); }

}  // namespace

TileProducts::~TileProducts() {
  if (rows_ > 0) give_back();
}

// Configures the tiles for products of `rows` rows whose last step has `tail` pairs. Does nothing
// if the tiles already fit, because configuring clears them and is slow.
void TileProducts::configure(int64_t rows, int64_t tail) {
  // A product without a last, shorter step can run with any tail.
  if (rows == rows_ && (tail == 0 || tail == tail_)) return;
  amx::Config config;
  // Sums and tiles of a have as many rows as the product; tiles of b have one row for each pair of
  // a step.
  for (int tile : {0, 1, 2, 3, 4, 6}) config.rows[tile] = static_cast<uint8_t>(rows);
  if (tail > 0) {
    config.row_bytes[6] = static_cast<uint16_t>(tail * 4);
    config.rows[7] = static_cast<uint8_t>(tail);
  }
  set_up(config);
  rows_ = rows;
  tail_ = tail;
}

void TileProducts::multiply(const TileProduct& p) {
  configure(p.rows, p.pairs % kSide);
  multiply_all(p);
  if (p.scale != 1) scale_all(p);
}

}  // namespace ds::cpu
