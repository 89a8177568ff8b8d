#pragma once
#include <cstdint>

namespace ds::cpu {

// c[rows, columns] = a b scale, or c + a b, of bf16 pairs: a[rows, pairs] and b[pairs, columns] are
// words of two neighbours along k, the lower k in the low half, in f32 arrays; c is f32. Distances
// of rows are in words.
struct TileProduct {
  const float* a;
  int64_t a_row;
  const float* b;
  int64_t b_row;
  float* c;
  int64_t c_row;
  int64_t rows;     // 1 to 16
  int64_t columns;  // a multiple of 16
  int64_t pairs;
  bool add = false;
  float scale = 1;  // 1 when added
};

// Small products with AMX, on a machine that has it. An element is one sum over steps of 16 pairs,
// whatever the rows and columns beside it are: of a step the instruction sums the even and the odd
// numbers by themselves. The tiles are the thread's from the first product to the end of this
// object.
class TileProducts {
 public:
  TileProducts() = default;
  ~TileProducts();
  TileProducts(const TileProducts&) = delete;
  TileProducts& operator=(const TileProducts&) = delete;

  void multiply(const TileProduct& p);

 private:
  void configure(int64_t rows, int64_t tail);
  int64_t rows_ = 0, tail_ = 0;  // what the tiles are set up for; 0: nothing
};

}  // namespace ds::cpu
