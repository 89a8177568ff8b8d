#include "kernels/gemm/gemm.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "core/base/error.h"
#include "core/base/round.h"
#include "core/device/thread_team.h"
#include "kernels/gemm/micro.h"
#include "kernels/gemm/pack.h"

namespace ds::gemm {
namespace {

constexpr int64_t kGroup = 32;  // rows of a that are packed together: one cache line of a stored row
constexpr int64_t kSlabBytes = 600 << 10;
constexpr int64_t kDepth = 1024;
constexpr int64_t kTasksPerThread = 8;
constexpr int64_t kFewestRows = 128;

int64_t slab_bytes(const Cut& cut) { return cut.width * cut.depth * 2; }
int64_t group_bytes(const Cut& cut) { return kGroup * cut.depth * 2; }
int64_t partial_bytes(const Cut& cut) { return cut.rows * cut.width * 4; }

int64_t bytes_of(const Cut& cut, int64_t k) {
  return slab_bytes(cut) + group_bytes(cut) + (k > cut.depth ? partial_bytes(cut) : 0);
}

// One task: some rows of one slab of columns.
class Task {
 public:
  Task(const MatrixProduct& product, const Cut& cut, int64_t row, int64_t column, std::byte* scratch)
      : product_(product),
        shape_(product.shape),
        cut_(cut),
        row_(row),
        column_(column),
        rows_(std::min(cut.rows, shape_.m - row)),
        columns_(std::min(cut.width, shape_.n - column)),
        slab_(reinterpret_cast<uint32_t*>(scratch)),
        group_(reinterpret_cast<uint32_t*>(scratch + slab_bytes(cut))),
        partial_(reinterpret_cast<float*>(scratch + slab_bytes(cut) + group_bytes(cut))) {}

  void run() {
    for (k_ = 0; k_ < shape_.k; k_ += cut_.depth) {
      depth_ = std::min(cut_.depth, shape_.k - k_);
      pack_slab();
      for (int64_t g = 0; g < rows_; g += kGroup) run_group(g, std::min(kGroup, rows_ - g));
    }
  }

 private:
  int64_t pairs() const { return (depth_ + 1) / 2; }

  void pack_slab() {
    const auto* b = static_cast<const bf16*>(product_.b);
    if (!shape_.transpose_b) {
      return pack_across_panels(b + k_ * shape_.ldb + column_, shape_.ldb, columns_, depth_, slab_);
    }
    for (int64_t j = 0; j < columns_; j += kTileColumns) {
      pack_along(b + (column_ + j) * shape_.ldb + k_, shape_.ldb, std::min(kTileColumns, columns_ - j),
                 depth_, kTileColumns, slab_ + j * pairs());
    }
  }

  // `count` <= 32 rows from row g of the task.
  void run_group(int64_t g, int64_t count) {
    const auto* a = static_cast<const bf16*>(product_.a);
    if (shape_.transpose_a)
      pack_across_4x8(a + k_ * shape_.lda + row_ + g, shape_.lda, count, depth_, group_);
    for (int64_t i = 0; i < count; i += kTileRows) {
      int64_t rows = std::min(kTileRows, count - i);
      TileJob job;
      job.pairs = pairs();
      bool packed = shape_.transpose_a || rows < kTileRows || depth_ % 2 != 0;
      const bf16* first = a + (row_ + g + i) * shape_.lda + k_;
      if (!packed) {
        job.a = reinterpret_cast<const std::byte*>(first);
        job.a_row = shape_.lda * 2;
      } else {
        uint32_t* panel = group_ + (shape_.transpose_a ? i * pairs() : 0);
        if (!shape_.transpose_a) pack_along(first, shape_.lda, rows, depth_, kTileRows, panel);
        job.a = reinterpret_cast<const std::byte*>(panel);
        job.a_row = 4;
      }
      run_row(job, packed, g + i, rows);
    }
  }

  // All tiles of eight rows.
  void run_row(TileJob& job, bool packed, int64_t row, int64_t rows) {
    job.last = k_ + depth_ == shape_.k;
    job.rows = rows;
    job.ldc = shape_.ldc;
    for (int64_t j = 0; j < columns_; j += kTileColumns) {
      job.b = slab_ + j * pairs();
      job.first = k_ == 0;
      job.columns = std::min(kTileColumns, columns_ - j);
      job.partial = partial_ + (row * cut_.width + j * kTileRows);
      place(job, (row_ + row) * shape_.ldc + column_ + j);
      job.bias = product_.bias ? static_cast<const bf16*>(product_.bias) + column_ + j : nullptr;
      alignas(64) float before[kTileElements];
      if (shape_.store == Store::added && k_ == 0) {
        if (job.last) job.partial = before;  // with one block of k there is no other room for partial sums
        load_partial(job);
      }
      packed ? run_tile_packed(job) : run_tile_direct(job);
    }
  }

  // Where the tile at `element` of c goes.
  void place(TileJob& job, int64_t element) const {
    if (shape_.store == Store::rounded) {
      job.c = static_cast<bf16*>(product_.c) + element;
    } else {
      job.wide = static_cast<float*>(product_.c) + element;
    }
  }

  // Sums go on from what c holds.
  static void load_partial(TileJob& job) {
    job.first = false;
    std::fill(job.partial, job.partial + kTileElements, 0.0f);
    for (int64_t i = 0; i < job.rows; ++i) {
      std::copy_n(job.wide + i * job.ldc, job.columns, job.partial + i * kTileColumns);
    }
  }

  const MatrixProduct& product_;
  const MatrixShape& shape_;
  const Cut& cut_;
  const int64_t row_, column_, rows_, columns_;
  uint32_t* const slab_;   // [panel][pair][48]
  uint32_t* const group_;  // up to [4][pair][8]
  float* const partial_;   // [row / 8][panel][8][48]
  int64_t k_ = 0, depth_ = 0;
};

}  // namespace

Cut cut_product(const MatrixShape& shape, int threads, size_t scratch_bytes) {
  int64_t blocks = std::max<int64_t>(1, ceil_div(shape.k, kDepth));
  int64_t panels = ceil_div(shape.n, kTileColumns);
  Cut cut{round_up(ceil_div(shape.k, blocks), 2), 0, round_up(shape.m, kGroup)};
  cut.rows = std::min<int64_t>(cut.rows, blocks > 1 ? 1024 : 2048);
  int64_t most = std::max<int64_t>(1, kSlabBytes / (cut.depth * 2 * kTileColumns));
  auto set_width = [&] { cut.width = ceil_div(panels, ceil_div(panels, most)) * kTileColumns; };
  set_width();
  auto tasks = [&] { return ceil_div(shape.m, cut.rows) * ceil_div(shape.n, cut.width); };
  // Half the columns packs nothing twice when a is read as it is stored; half the rows packs b twice.
  while (tasks() < kTasksPerThread * threads && (cut.rows > kFewestRows || most > 1)) {
    bool narrow = most > (shape.transpose_a ? 1 : 2) && (!shape.transpose_a || cut.rows <= kFewestRows);
    if (narrow || cut.rows <= kFewestRows) {
      most = (most + 1) / 2;
      set_width();
    } else {
      cut.rows = round_up(cut.rows / 2, kGroup);
    }
  }
  auto limit = static_cast<int64_t>(scratch_bytes);
  while (bytes_of(cut, shape.k) > limit && cut.rows > kGroup) cut.rows = round_up(cut.rows / 2, kGroup);
  while (bytes_of(cut, shape.k) > limit && cut.width > kTileColumns) {
    cut.width = round_up(cut.width / 2, kTileColumns);
  }
  while (bytes_of(cut, shape.k) > limit && cut.depth > 2) cut.depth = round_up(cut.depth / 2, 2);
  ensure(bytes_of(cut, shape.k) <= limit, "scratch of {} bytes holds no tile of a product", scratch_bytes);
  return cut;
}

void multiply(const MatrixProduct& product, ThreadTeam& team) {
  const MatrixShape& shape = product.shape;
  const Cut cut = cut_product(shape, team.size(), team.scratch_bytes());
  const int64_t rows = ceil_div(shape.m, cut.rows), columns = ceil_div(shape.n, cut.width);
  // Rows run fastest: tasks next to each other share columns of b.
  auto run = [&](int64_t task, int thread) {
    Task(product, cut, task % rows * cut.rows, task / rows * cut.width, team.scratch(thread).data()).run();
  };
  team.parallel_for(rows * columns, std::cref(run));  // by reference: a std::function of it would allocate
}

}  // namespace ds::gemm
