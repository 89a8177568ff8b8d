// bf16 matrix products (Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication",
// 2008). A task computes some rows of a slab of columns. It goes along k in blocks: it packs the
// slab of b for the block, then takes rows of a, 32 at a time, packs those that the micro-kernel
// cannot read in place, and runs the micro-kernel on each tile. If k has several blocks, partial
// sums are kept in scratch as f32.
//
// Invariant: each element of c is one sum over k in order, wherever its tile lies. So the bits
// depend neither on the division into tasks nor on the number of threads.
#include "kernels/gemm/gemm.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "core/base/error.h"
#include "core/base/round.h"
#include "core/device/cpu_features.h"
#include "core/device/thread_team.h"
#include "kernels/gemm/micro.h"
#include "kernels/gemm/tiles.h"
#include "kernels/gemm/vectors.h"

namespace ds::gemm {
namespace {

int64_t slab_bytes(const Cut& cut) { return cut.width * cut.depth * 2; }
int64_t partial_bytes(const Cut& cut) { return cut.rows * cut.width * 4; }

// Returns the bytes of scratch that a task needs.
int64_t bytes_of(const Micro& micro, const Cut& cut, int64_t k) {
  return slab_bytes(cut) + micro.group_bytes(cut.depth) + (k > cut.depth ? partial_bytes(cut) : 0);
}

const Micro& micro_of(Isa isa) { return isa == Isa::amx ? tiles() : vectors(); }

// A task, which computes some rows of one slab of columns. Its scratch holds the slab, a group of
// packed rows and, if k has several blocks, partial sums.
class Task {
 public:
  Task(const MatrixProduct& product, const Micro& micro, const Cut& cut, int64_t row,
       int64_t column, std::byte* scratch)
      : product_(product),
        shape_(product.shape),
        micro_(micro),
        cut_(cut),
        row_(row),
        column_(column),
        rows_(std::min(cut.rows, shape_.m - row)),
        columns_(std::min(cut.width, shape_.n - column)),
        slab_(reinterpret_cast<uint32_t*>(scratch)),
        group_(scratch + slab_bytes(cut)),
        partial_(reinterpret_cast<float*>(group_ + micro.group_bytes(cut.depth))) {}

  void run() {
    micro_.begin();
    for (k_ = 0; k_ < shape_.k; k_ += cut_.depth) {
      depth_ = std::min(cut_.depth, shape_.k - k_);
      pack_slab();
      for (int64_t g = 0; g < rows_; g += kGroup) run_group(g, std::min(kGroup, rows_ - g));
    }
    micro_.end();
  }

 private:
  int64_t pairs() const { return round_up(depth_, micro_.step) / 2; }

  void pack_slab() {
    const auto* b = static_cast<const bf16*>(product_.b);
    if (shape_.transpose_b) {
      micro_.pack_b_along({b + column_ * shape_.ldb + k_, shape_.ldb, columns_, depth_}, slab_);
    } else {
      micro_.pack_b_across({b + k_ * shape_.ldb + column_, shape_.ldb, columns_, depth_}, slab_);
    }
  }

  // Runs `count` <= kGroup rows from row g of the task on. Rows that are stored along k may be read
  // in place if the micro-kernel can do so and the tile is whole; others are packed.
  void run_group(int64_t g, int64_t count) {
    const auto* a = static_cast<const bf16*>(product_.a);
    if (shape_.transpose_a)
      micro_.pack_a_across({a + k_ * shape_.lda + row_ + g, shape_.lda, count, depth_}, group_);
    for (int64_t i = 0; i < count; i += micro_.tile_rows) {
      int64_t rows = std::min(micro_.tile_rows, count - i);
      TileJob job;
      job.pairs = pairs();
      bool packed = !micro_.run_stored || shape_.transpose_a || rows < micro_.tile_rows ||
                    depth_ % micro_.step != 0;
      const bf16* first = a + (row_ + g + i) * shape_.lda + k_;
      if (!packed) {
        job.a = reinterpret_cast<const std::byte*>(first);
        job.a_row = shape_.lda * 2;
      } else {
        if (!shape_.transpose_a) micro_.pack_a_along({first, shape_.lda, rows, depth_}, group_);
        job.a = group_ + (shape_.transpose_a ? i * pairs() * 4 : 0);
      }
      run_row(job, packed, g + i, rows);
    }
  }

  // Runs all tiles of rows [row, row + rows) of the task.
  void run_row(TileJob& job, bool packed, int64_t row, int64_t rows) {
    job.last = k_ + depth_ == shape_.k;
    job.rows = rows;
    job.ldc = shape_.ldc;
    for (int64_t j = 0; j < columns_; j += micro_.tile_columns) {
      job.b = slab_ + j * pairs();
      job.first = k_ == 0;
      job.columns = std::min(micro_.tile_columns, columns_ - j);
      job.partial = partial_ + (row * cut_.width + j * micro_.tile_rows);
      place(job, (row_ + row) * shape_.ldc + column_ + j);
      job.bias = product_.bias ? static_cast<const bf16*>(product_.bias) + column_ + j : nullptr;
      alignas(64) float before[kMostTileElements];
      if (shape_.store == Store::added && k_ == 0) {
        if (job.last)
          // With a single block of k, scratch has no room for partial sums, so the old values of c
          // are copied to a buffer on the stack.
          job.partial = before;
        load_partial(job);
      }
      packed ? micro_.run_packed(job) : micro_.run_stored(job);
    }
  }

  // Sets the destination of the tile that begins at `element` of c.
  void place(TileJob& job, int64_t element) const {
    if (shape_.store == Store::rounded) {
      job.c = static_cast<bf16*>(product_.c) + element;
    } else {
      job.wide = static_cast<float*>(product_.c) + element;
    }
  }

  // Lets the sums continue from the values of c, as Store::added requires.
  void load_partial(TileJob& job) const {
    job.first = false;
    std::fill_n(job.partial, micro_.tile_rows * micro_.tile_columns, 0.0f);
    for (int64_t i = 0; i < job.rows; ++i) {
      std::copy_n(job.wide + i * job.ldc, job.columns, job.partial + i * micro_.tile_columns);
    }
  }

  const MatrixProduct& product_;
  const MatrixShape& shape_;
  const Micro& micro_;
  const Cut& cut_;
  const int64_t row_, column_, rows_, columns_;
  // The packed slab of b: its panels, one after another.
  uint32_t* const slab_;
  std::byte* const group_;
  // The partial sums, [tile of rows][panel][tile rows][tile columns].
  float* const partial_;
  int64_t k_ = 0, depth_ = 0;
};

}  // namespace

Cut cut_product(const MatrixShape& shape, int threads, size_t scratch_bytes, Isa isa) {
  const Micro& micro = micro_of(isa);
  const int64_t panel = micro.tile_columns;
  int64_t blocks = std::max<int64_t>(1, ceil_div(shape.k, micro.most_depth));
  int64_t panels = ceil_div(shape.n, panel);
  Cut cut{round_up(ceil_div(shape.k, blocks), micro.step), 0, round_up(shape.m, kGroup)};
  cut.rows = std::min<int64_t>(cut.rows, blocks > 1 ? 1024 : 2048);
  int64_t most = std::max<int64_t>(1, micro.slab_bytes / (cut.depth * 2 * panel));
  auto set_width = [&] { cut.width = ceil_div(panels, ceil_div(panels, most)) * panel; };
  set_width();
  auto tasks = [&] { return ceil_div(shape.m, cut.rows) * ceil_div(shape.n, cut.width); };
  // As long as there are too few tasks for the threads, halve the columns or the rows of a task.
  // Fewer columns cost nothing if a is read as stored, since nothing is then packed twice. Fewer
  // rows mean that b is packed more often.
  const bool packs_a = shape.transpose_a || !micro.run_stored;
  while (tasks() < micro.tasks_per_thread * threads && (cut.rows > micro.fewest_rows || most > 1)) {
    bool narrow = most > (packs_a ? 1 : 2) && (!packs_a || cut.rows <= micro.fewest_rows);
    if (narrow || cut.rows <= micro.fewest_rows) {
      most = (most + 1) / 2;
      set_width();
    } else {
      cut.rows = round_up(cut.rows / 2, kGroup);
    }
  }
  // Then shrink until the buffers fit: first rows, then columns, then the depth.
  auto limit = static_cast<int64_t>(scratch_bytes);
  while (bytes_of(micro, cut, shape.k) > limit && cut.rows > kGroup)
    cut.rows = round_up(cut.rows / 2, kGroup);
  while (bytes_of(micro, cut, shape.k) > limit && cut.width > panel) {
    cut.width = round_up(cut.width / 2, panel);
  }
  while (bytes_of(micro, cut, shape.k) > limit && cut.depth > micro.step) {
    cut.depth = round_up(cut.depth / 2, micro.step);
  }
  ensure(bytes_of(micro, cut, shape.k) <= limit,
         "scratch of {} bytes is too small for one tile of a product", scratch_bytes);
  return cut;
}

void multiply(const MatrixProduct& product, ThreadTeam& team, Isa isa) {
  const MatrixShape& shape = product.shape;
  const Cut cut = cut_product(shape, team.size(), team.scratch_bytes(), isa);
  const Micro& micro = micro_of(isa);
  const int64_t rows = ceil_div(shape.m, cut.rows), columns = ceil_div(shape.n, cut.width);
  // The row index varies fastest, so that neighbouring tasks share columns of b.
  auto run = [&](int64_t task, int thread) {
    Task(product, micro, cut, task % rows * cut.rows, task / rows * cut.width,
         team.scratch(thread).data())
        .run();
  };
  // The lambda is passed by reference: copying it into a std::function would allocate.
  team.parallel_for(rows * columns, std::cref(run));
}

void multiply(const MatrixProduct& product, ThreadTeam& team) {
  static const Isa isa = effective_isa();
  multiply(product, team, isa);
}

}  // namespace ds::gemm
