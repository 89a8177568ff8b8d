// The host side of normalization and of sums over rows: it decides how many threads share a row,
// and lays out the scratch memory for the sums of chunks.
#include "kernels/cuda/norm.h"

#include <algorithm>
#include <memory>
#include <span>
#include <string>

#include "core/base/round.h"
#include "core/device/view.h"
#include "kernels/cuda/element_args.h"
#include "kernels/cuda/host.h"
#include "kernels/cuda/kernel.h"

namespace ds::cuda {
namespace {

using Made = std::unique_ptr<Kernel>;

// Returns the number of threads, in whole warps, such that each has at most `columns` columns of a
// row; at most 8 warps, even if threads then have more columns.
uint32_t row_threads(int64_t width, int64_t columns) {
  return static_cast<uint32_t>(
      std::clamp<int64_t>(round_up(ceil_div(width, columns), 32), 32, 256));
}
// The number of columns that a thread keeps in registers: kHeld groups of eight (row-inl.h).
constexpr int64_t kKeptColumns = 24;
void start_rows(Launcher& launcher, const char* entry, NormArgs a) {
  a.share = 1 / static_cast<float>(a.width);
  const uint32_t threads = row_threads(a.width, kKeptColumns), rows = threads == 32 ? 4 : 1;
  // Shared memory has room for two sums over a block.
  start(launcher, entry, {blocks(a.rows, rows)}, {threads, rows}, a, 16 * sizeof(float));
}

Made make_layer_norm(const Query& query, std::string*) {
  const auto eps = static_cast<float>(query.attrs.real("eps"));
  return made([=](Launcher& launcher, const Arguments& c) {
    NormArgs a{};
    a.x = operand(c.in[0]);
    if (c.in.size() == 3) a.w = operand(c.in[1]), a.b = operand(c.in[2]);
    a.y = operand(c.out[0]);
    a.mean = c.out[1].as<float>(), a.rstd = c.out[2].as<float>();
    a.rows = c.in[0].dims[0], a.width = c.in[0].dims[1];
    a.eps = eps;
    start_rows(launcher, "layer_norm", a);
  });
}

Made make_layer_norm_dx(const Query&, std::string*) {
  return made([](Launcher& launcher, const Arguments& c) {
    NormArgs a{};
    a.dy = operand(c.in[0]), a.x = operand(c.in[1]);
    if (c.in.size() == 5) a.w = operand(c.in[2]);
    std::span<const TensorView> stats = c.in.last(2);
    a.mean = stats[0].as<float>(), a.rstd = stats[1].as<float>();
    a.y = operand(c.out[0]);
    a.rows = c.in[0].dims[0], a.width = c.in[0].dims[1];
    start_rows(launcher, "layer_norm_dx", a);
  });
}

Made make_rms_norm(const Query& query, std::string*) {
  const auto eps = static_cast<float>(query.attrs.real("eps"));
  const float offset = query.attrs.integer_or("offset", 0) == 0 ? 0.0f : 1.0f;
  return made([=](Launcher& launcher, const Arguments& c) {
    NormArgs a{};
    a.x = operand(c.in[0]), a.w = operand(c.in[1]);
    a.y = operand(c.out[0]);
    a.rstd = c.out[1].as<float>();
    a.width = c.in[1].dims[0], a.rows = c.in[0].numel() / a.width;
    a.eps = eps, a.offset = offset;
    start_rows(launcher, "rms_norm", a);
  });
}

Made make_rms_norm_dx(const Query& query, std::string*) {
  const float offset = query.attrs.integer_or("offset", 0) == 0 ? 0.0f : 1.0f;
  return made([=](Launcher& launcher, const Arguments& c) {
    NormArgs a{};
    a.dy = operand(c.in[0]), a.x = operand(c.in[1]), a.w = operand(c.in[2]);
    a.rstd = c.in[3].as<float>();
    a.y = operand(c.out[0]);
    a.width = c.in[2].dims[0], a.rows = c.in[0].numel() / a.width;
    a.offset = offset;
    start_rows(launcher, "rms_norm_dx", a);
  });
}

void start_columns(Launcher& launcher, ColumnArgs a, void* scratch) {
  a.partial = static_cast<float*>(scratch);
  a.chunks = ceil_div(a.rows, kChunk);
  // The bytes of shared memory for one sum of one part.
  constexpr uint32_t kRoom = kThreads * sizeof(float);
  // The first launch computes the sums of chunks of rows into the scratch memory, the second adds
  // them up.
  start(launcher, "column_chunks", {static_cast<uint32_t>(a.chunks), blocks(a.width, kThreads)},
        {kThreads}, a, static_cast<uint32_t>(a.sums) * kColumnParts * kRoom);
  start(launcher, "column_sums", {blocks(a.width, 32)}, {kThreads}, a, 2 * kRoom);
}
int64_t bytes_of_columns(int64_t rows, int64_t width, int64_t sums) {
  return ceil_div(rows, kChunk) * sums * width * static_cast<int64_t>(sizeof(float));
}

Made make_layer_norm_dw(const Query& query, std::string*) {
  return made(
      [](Launcher& launcher, const Arguments& c) {
        ColumnArgs a{};
        a.dy = operand(c.in[0]), a.x = operand(c.in[1]);
        a.mean = c.in[2].as<float>(), a.rstd = c.in[3].as<float>();
        a.dw = operand(c.out[0]), a.db = operand(c.out[1]);
        a.rows = c.in[0].dims[0], a.width = c.in[0].dims[1];
        a.sums = 2, a.kind = 2;
        start_columns(launcher, a, c.scratch);
      },
      bytes_of_columns(query.in[0].dims[0], query.in[0].dims[1], 2));
}

Made make_rms_norm_dw(const Query& query, std::string*) {
  return made(
      [](Launcher& launcher, const Arguments& c) {
        ColumnArgs a{};
        a.dy = operand(c.in[0]), a.x = operand(c.in[1]);
        a.rstd = c.in[2].as<float>();
        a.dw = operand(c.out[0]);
        a.width = c.out[0].dims[0], a.rows = c.in[0].numel() / a.width;
        a.sums = 1, a.kind = 1;
        start_columns(launcher, a, c.scratch);
      },
      bytes_of_columns(query.in[0].numel() / query.out[0].dims[0], query.out[0].dims[0], 1));
}

// The gradient of a bias is a plain sum over rows.
Made make_linear_db(const Query& query, std::string*) {
  return made(
      [](Launcher& launcher, const Arguments& c) {
        ColumnArgs a{};
        a.dy = operand(c.in[0]);
        a.dw = operand(c.out[0]);
        a.rows = c.in[0].dims[0], a.width = c.in[0].dims[1];
        a.sums = 1, a.kind = 0;
        start_columns(launcher, a, c.scratch);
      },
      bytes_of_columns(query.in[0].dims[0], query.in[0].dims[1], 1));
}

Made make_scale_rows_dw(const Query& query, std::string*) {
  const auto column = static_cast<int32_t>(query.attrs.integer("column"));
  return made([=](Launcher& launcher, const Arguments& c) {
    ColumnArgs a{};
    a.dy = operand(c.in[0]), a.x = operand(c.in[1]);
    a.dw = operand(c.out[0]);
    a.rows = c.in[0].dims[0], a.width = c.in[0].dims[1];
    a.sums = static_cast<int32_t>(c.out[0].dims[1]);
    a.kind = column;
    start(launcher, "scale_rows_dw", {static_cast<uint32_t>(a.rows)}, {row_threads(a.width, 4)}, a,
          16 * sizeof(float));
  });
}

constexpr KernelRow kRows[] = {
    {"layer_norm", make_layer_norm},       {"layer_norm_dx", make_layer_norm_dx},
    {"layer_norm_dw", make_layer_norm_dw}, {"rms_norm", make_rms_norm},
    {"rms_norm_dx", make_rms_norm_dx},     {"rms_norm_dw", make_rms_norm_dw},
    {"linear_db", make_linear_db},         {"scale_rows_dw", make_scale_rows_dw},
};

}  // namespace

std::span<const KernelRow> norm_rows() { return kRows; }

}  // namespace ds::cuda
