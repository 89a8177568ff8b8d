#pragma once
#include <cstdint>

namespace ds::cpu {

// A matrix product of bf16 pairs: c[rows, columns] = a b scale or, if `add`, c + a b. a[rows,
// pairs] and b[pairs, columns] are words of two neighbours along k, the lower k in the low half, in
// f32 arrays; c is f32. Distances between rows are in words.
struct TileProduct {
  const float* a;
  int64_t a_row;
  const float* b;
  int64_t b_row;
  float* c;
  int64_t c_row;
  // The number of rows must be 1 to 16.
  int64_t rows;
  // The number of columns must be a multiple of 16.
  int64_t columns;
  int64_t pairs;
  bool add = false;
  // Must be 1 if `add` is set.
  float scale = 1;
};

// The AMX tiles of the calling thread, with which multiply() computes small products. The machine
// must have AMX. Each element is one sum over steps of 16 pairs, whatever rows and columns are
// computed with it; within a step the instruction sums products with even k and those with odd k
// separately. From its first product until it is destroyed, the object occupies the AMX tiles of
// the calling thread.
class TileProducts {
 public:
  TileProducts() = default;
  ~TileProducts();
  TileProducts(const TileProducts&) = delete;
  TileProducts& operator=(const TileProducts&) = delete;

  void multiply(const TileProduct& p);

 private:
  void configure(int64_t rows, int64_t tail);
  // The rows and the tail for which the tiles are configured. rows_ is 0 before the first product.
  int64_t rows_ = 0, tail_ = 0;
};

}  // namespace ds::cpu
