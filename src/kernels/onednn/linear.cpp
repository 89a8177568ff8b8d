// Matrix products of the `linear` ops and of the fused head on oneDNN. A product is cut into tiles
// that depend only on its shape; each tile is one single-threaded primitive, and the team runs the
// tiles. So bits do not depend on the number of threads. Primitives are shared by all ranks of the
// process.
#include "kernels/onednn/linear.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/round.h"
#include "kernels/cpu/kernel_facts.h"
#include "kernels/cpu/linear_cross_entropy.h"
#include "kernels/cpu/linear_few.h"
#include "kernels/kernel.h"
#include "kernels/matrix_product.h"
#include "kernels/onednn/adapter.h"
#include "kernels/onednn/primitive_cache.h"

namespace ds {
namespace onednn {
namespace {

// A primitive costs about 50 KiB (measured), so a full cache is about 25 MiB.
constexpr size_t kCachedPrimitives = 512;

// Returns the size of the pieces into which `extent` is cut. Aims at an even number of pieces, at
// least `fewest`, of at most about `target` each. The size is rounded up to a multiple of `unit`,
// but is never larger than `extent`.
int64_t piece(int64_t extent, int64_t target, int64_t fewest, int64_t unit) {
  int64_t pieces = std::max(fewest, round_up(ceil_div(extent, target), 2));
  return std::min(extent, round_up(ceil_div(extent, pieces), unit));
}

// Returns the cache of the process's primitives. Creating a primitive takes milliseconds, and the
// ranks of one process need the same primitives.
PrimitiveCache& cache() {
  static PrimitiveCache primitives(kCachedPrimitives);
  return primitives;
}

const std::byte* at(const void* base, int64_t element, DType dtype) {
  return static_cast<const std::byte*>(base) + element * size_of(dtype);
}

// A product that runs in tiles.
struct Tiled {
  MatrixProduct product;

  void run(ThreadTeam& team) const {
    const MatrixShape& whole = product.shape;
    Tile tile = tile_for(whole.m, whole.n, whole.transpose_a);
    int64_t rows = ceil_div(whole.m, tile.rows), columns = ceil_div(whole.n, tile.columns);
    // The row index varies fastest, so that neighbouring tasks share a slab of b.
    auto run = [&](int64_t task, int thread) {
      run_tile(tile, task % rows * tile.rows, task / rows * tile.columns, team.scratch(thread));
    };
    // The lambda is passed by reference: copying it into a std::function would allocate.
    team.parallel_for(rows * columns, std::cref(run));
  }

  // Creates the primitives of all tiles, which have at most four shapes: one for inner tiles, and
  // one each for the lower edge, the right edge and the corner. Returns the largest number of bytes
  // that the tiles running at the same time allocate and free.
  int64_t prepare(ThreadTeam& team) const {
    const MatrixShape& whole = product.shape;
    int64_t most = 0;
    Tile tile = tile_for(whole.m, whole.n, whole.transpose_a);
    int64_t last_row = (whole.m - 1) / tile.rows * tile.rows;
    int64_t last_column = (whole.n - 1) / tile.columns * tile.columns;
    for (auto [row, column] : {std::pair<int64_t, int64_t>{0, 0},
                               {last_row, 0},
                               {0, last_column},
                               {last_row, last_column}}) {
      std::shared_ptr<const Matmul> matmul = cache().get(tile_key(tile, row, column));
      matmul->reserve(team.size(), team.scratch_bytes());
      most = std::max(most, matmul->run_bytes());
    }
    return most * team.size();
  }

  MatrixShape tile_key(const Tile& tile, int64_t row, int64_t column) const {
    const MatrixShape& whole = product.shape;
    MatrixShape key = whole;
    key.m = std::min(tile.rows, whole.m - row);
    key.n = std::min(tile.columns, whole.n - column);
    return key;
  }

  void run_tile(const Tile& tile, int64_t row, int64_t column, std::span<std::byte> scratch) const {
    const MatrixShape& whole = product.shape;
    MatrixShape key = tile_key(tile, row, column);
    const std::byte* from_a = at(product.a, whole.transpose_a ? row : row * whole.lda, whole.dtype);
    const std::byte* from_b =
        at(product.b, whole.transpose_b ? column * whole.ldb : column, whole.dtype);
    const std::byte* from_bias = whole.bias ? at(product.bias, column, whole.dtype) : nullptr;
    std::byte* to = const_cast<std::byte*>(at(product.c, row * whole.ldc + column, whole.result()));
    cache().get(key)->run(from_a, from_b, from_bias, to, scratch.data(), scratch.size());
  }
};

template <MatrixProduct (*product)(const KernelContext&)>
void run(const KernelContext& c) {
  Tiled{product(c)}.run(c.team);
}

template <MatrixProduct (*product)(const KernelContext&)>
int64_t prepare(const KernelContext& c) {
  return Tiled{product(c)}.prepare(c.team);
}

void multiply(const MatrixProduct& product, ThreadTeam& team) { Tiled{product}.run(team); }

// Prepares the products that `list` lists for the blocks of the fused head. Returns the largest
// number of bytes that one of them allocates and frees.
template <void (*list)(const KernelContext&, const cpu::EachShape&)>
int64_t prepare_products(const KernelContext& c) {
  int64_t most = 0;
  list(c, [&](const MatrixShape& shape) {
    most = std::max(most, Tiled{{shape, nullptr, nullptr, nullptr, nullptr}}.prepare(c.team));
  });
  return most;
}

void linear_cross_entropy(const KernelContext& c) { cpu::linear_cross_entropy(c, multiply); }
void linear_cross_entropy_dx(const KernelContext& c) { cpu::linear_cross_entropy_dx(c, multiply); }

void linear(const KernelContext& c) {
  cpu::has_few_rows(c) ? cpu::linear_few(c) : run<product_of_linear>(c);
}

int64_t prepare_linear(const KernelContext& c) {
  return cpu::has_few_rows(c) ? 0 : prepare<product_of_linear>(c);
}

// Returns why bf16 products should not run on this machine's oneDNN, or "". oneDNN's reference code
// is too slow to be of use.
std::string bf16_refusal() {
  MatrixShape probe{64, 64, 64, 64, 64, 64, false, false, false, DS_DTYPE_BF16};
  try {
    std::string name = Matmul(probe).implementation();
    if (!name.starts_with("ref")) return "";
    return "oneDNN " + effective_isa() + " runs bf16 with its reference code only";
  } catch (const Error&) {
    return "oneDNN " + effective_isa() + " has no bf16 matmul";
  }
}

// Returns why products of this type are not available here, or "".
std::string refuse_type(DType dtype) {
  if (dtype != DS_DTYPE_F32 && dtype != DS_DTYPE_BF16)
    return std::string(dtype_name(dtype)) + " elements";
  static const std::string bf16 = bf16_refusal();
  return dtype == DS_DTYPE_BF16 ? bf16 : "";
}

std::string refuse(const KernelQuery& query) {
  std::string type = refuse_type(query.in[0]);
  return type.empty() ? mixed_dtypes(query) : type;
}

std::string refuse_head(const KernelQuery& query) { return cpu::refuse_head(query, refuse_type); }

}  // namespace

Tile tile_for(int64_t m, int64_t n, bool transpose_a) {
  // Measured on Zen 5 with one thread, relative to the uncut product: tiles of 256 rows and all n
  // columns reach at least 98 % of its speed, tiles of 128 rows 94 %; for dy^T x, tiles of 384 rows
  // reach 100 %. With more than 3072 columns, a slab of b no longer fits in the second-level cache.
  Tile tile{piece(m, transpose_a ? 384 : 256, m >= 384 ? 4 : 2, 32), n};
  if (n > 3072) tile.columns = 1536;
  if (m < 64) tile = {m, piece(n, 1536, 4, 64)};
  return tile;
}

int64_t cached_primitives() { return cache().size(); }

}  // namespace onednn

void register_onednn(KernelRegistry& registry) {
  limit_isa_from_environment();
  using namespace onednn;
  registry.add({"linear", "onednn", linear, refuse, prepare_linear});
  registry.add(
      {"linear_dx", "onednn", run<product_of_linear_dx>, refuse, prepare<product_of_linear_dx>});
  registry.add(
      {"linear_dw", "onednn", run<product_of_linear_dw>, refuse, prepare<product_of_linear_dw>});
  registry.add({"linear_cross_entropy", "onednn", linear_cross_entropy, refuse_head,
                prepare_products<cpu::list_head_products>});
  registry.add({"linear_cross_entropy_dx", "onednn", linear_cross_entropy_dx, refuse_head,
                prepare_products<cpu::list_head_dx_products>});
}

}  // namespace ds
