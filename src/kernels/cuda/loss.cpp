// The host side of the losses, of the softmax of rows, and of this folder's own matrix product.
//
// linear_cross_entropy need not store all logits: without kept logits it computes them for a block
// of words, merges them into the softmax of the rows, and discards them. Backward computes each
// block again, turns it into gradients, and adds their products to dx and dw. With kept logits
// there is only one matrix product each for logits, dx and dw, at the cost of memory for all
// logits.
#include "kernels/cuda/loss.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/base/attrs.h"
#include "core/base/dtype.h"
#include "core/device/view.h"
#include "core/graph/ops/kept_logits.h"
#include "kernels/cuda/element_args.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/host.h"
#include "kernels/cuda/kernel.h"
#include "kernels/cuda/product.h"
#include "kernels/formulas/logits_head.h"
#include "kernels/formulas/row_loss.h"
#include "kernels/matrix_product.h"

namespace ds::cuda {
namespace {

using Made = std::unique_ptr<Kernel>;

// The bytes of shared memory that kernels need: kRoom for two sums over a block in f64, and
// kStatsRoom for a softmax (two values) and one sum in f32.
constexpr uint32_t kRoom = 2 * kLossThreads / 32 * sizeof(double);
constexpr uint32_t kStatsRoom = 3 * kLossThreads / 32 * sizeof(float);

void start_fold(Launcher& launcher, const LossArgs& a) {
  start(launcher, "fold", {static_cast<uint32_t>(a.rows)}, {kLossThreads}, a, kStatsRoom);
}
void start_loss(Launcher& launcher, const LossArgs& a) {
  start(launcher, "loss_terms", {blocks(a.rows, kThreads)}, {kThreads}, a);
  if (a.each) return;
  start(launcher, "loss_mean", {1}, {kLossThreads}, a, kRoom);
}
// Enqueues the computation of *scale, the common factor of the gradients of all rows. With
// Reduction::none it does nothing, because each row has its own dloss.
void start_scale(Launcher& launcher, LossArgs& a, float* scale) {
  if (a.each) return;
  a.scale = scale;
  start(launcher, "loss_scale", {1}, {kLossThreads}, a, kRoom);
}
void start_gradients(Launcher& launcher, const LossArgs& a) {
  // The number of blocks that share a row, at most 64. With fewer than 64, each thread has at most
  // four groups of eight words.
  const uint32_t across = std::min(blocks(a.words, 4 * 8 * kThreads), 64u);
  start(launcher, "logit_gradients", {static_cast<uint32_t>(a.rows), across}, {kThreads}, a);
}
int64_t bytes_of_loss(int64_t rows) {
  Scratch scratch(nullptr);
  scratch.take<double>(rows);
  for (int k = 0; k < 2; ++k) scratch.take<float>(rows);
  return scratch.used();
}

// Sets the fields that depend on the attributes of a loss over `words` words.
void put_attributes(LossArgs& a, const Attrs& attrs, int64_t words) {
  const auto loss = RowLoss<float>::of(attrs, words);
  const Reduction reduction = reduction_of(attrs);
  a.all_words = words;
  a.smoothing = loss.smoothing, a.z = loss.z;
  a.mean = reduction == Reduction::mean, a.each = reduction == Reduction::none;
}
bool smooths(const Attrs& attrs) { return attrs.real_or("label_smoothing", 0) != 0; }

Made make_cross_entropy(const Query& query, std::string*) {
  return made(
      [attrs = query.attrs](Launcher& launcher, const Arguments& c) {
        LossArgs a{};
        put_attributes(a, attrs, c.in[0].dims[1]);
        a.logits = operand(c.in[0]);
        a.targets = c.in[1].as<int32_t>();
        a.loss = c.out[0].as<float>();
        a.stats = c.out[1].as<RowStats>();
        a.rows = c.in[0].dims[0], a.words = a.stride = c.in[0].dims[1];
        a.begins = 1;
        Scratch scratch(c.scratch);
        a.terms = scratch.take<double>(a.rows);
        a.target_logit = scratch.take<float>(a.rows);
        if (smooths(attrs)) a.spread = scratch.take<float>(a.rows);
        start_fold(launcher, a);
        start_loss(launcher, a);
      },
      bytes_of_loss(query.in[0].dims[0]));
}

Made make_cross_entropy_dx(const Query& query, std::string*) {
  return made(
      [attrs = query.attrs](Launcher& launcher, const Arguments& c) {
        LossArgs a{};
        put_attributes(a, attrs, c.in[1].dims[1]);
        a.dloss = c.in[0].as<float>();
        a.logits = operand(c.in[1]);
        a.targets = c.in[2].as<int32_t>();
        a.stats = c.in[3].as<RowStats>();
        a.to = operand(c.out[0]);
        a.rows = c.in[1].dims[0], a.words = a.stride = a.to_stride = c.in[1].dims[1];
        start_scale(launcher, a, static_cast<float*>(c.scratch));
        start_gradients(launcher, a);
      },
      sizeof(float));
}

// An output layer that does not keep its logits.
struct Head : LogitsHead {
  using LogitsHead::LogitsHead;

  // Returns the arguments for the block of words that begins at `first`.
  LossArgs at(int64_t first, const Attrs& attrs) const {
    LossArgs a{};
    put_attributes(a, attrs, words);
    a.logits = {logits, DS_DTYPE_F32, 0};
    a.rows = rows, a.words = count(first), a.stride = block;
    a.first = first;
    a.begins = first == 0;
    return a;
  }
};

// An output layer that keeps its logits, in the type of x, for the gradient. Tensor cores need rows
// of whole vectors in every matrix, so rows of logits are padded with zeros up to a multiple of 8
// words. If the number of words is not a multiple of 8, the weight is first copied and extended by
// rows of zeros.
struct KeptHead {
  int64_t rows, width, words, stride;
  DType dtype;
  const TensorView &x, &w;
  // Memory for the weight padded to `stride` words, or its gradient. Null if the weight needs no
  // padding.
  std::byte* padded;

  KeptHead(const TensorView& x, const TensorView& w, const TensorView& logits, Scratch& scratch)
      : rows(x.dims[0]),
        width(x.dims[1]),
        words(w.dims[0]),
        stride(logits.dims[1]),
        dtype(x.dtype),
        x(x),
        w(w),
        padded(words == stride ? nullptr
                               : scratch.take<std::byte>(stride * width * size_of(dtype))) {}
  // Returns the weight with `stride` rows. Enqueues a padded copy if it is needed.
  const void* weight(Launcher& launcher) const {
    if (!padded) return w.data;
    copy_bytes(launcher, w.data, padded, w.bytes());
    copy_bytes(launcher, nullptr, padded + w.bytes(), (stride - words) * width * size_of(dtype));
    return padded;
  }
  LossArgs args(const Attrs& attrs, const TensorView& logits) const {
    LossArgs a{};
    put_attributes(a, attrs, words);
    a.logits = operand(logits);
    a.rows = rows, a.words = words, a.stride = stride;
    a.begins = 1, a.padded = 1;
    return a;
  }
};

void make_kept_logits(Launcher& launcher, const Arguments& c, const Attrs& attrs) {
  Scratch scratch(c.scratch);
  auto* terms = scratch.take<double>(c.in[0].dims[0]);
  const KeptHead head(c.in[0], c.in[1], c.out[2], scratch);
  multiply(launcher, {{head.rows, head.stride, head.width, head.width, head.width, head.stride,
                       false, true, false, head.dtype},
                      head.x.data,
                      head.weight(launcher),
                      nullptr,
                      c.out[2].data});
  LossArgs a = head.args(attrs, c.out[2]);
  a.targets = c.in[2].as<int32_t>();
  a.loss = c.out[0].as<float>();
  a.stats = c.out[1].as<RowStats>();
  a.target_logit = c.out[3].as<float>();
  if (smooths(attrs)) a.spread = c.out[4].as<float>();
  a.terms = terms;
  start_fold(launcher, a);
  start_loss(launcher, a);
}
void make_gradients_of_kept(Launcher& launcher, const Arguments& c, const Attrs& attrs) {
  Scratch scratch(c.scratch);
  auto* scale = scratch.take<float>(1);
  const KeptHead head(c.in[1], c.in[2], c.in[5], scratch);
  const TensorView &gradients = c.out[2], &dx = c.out[0], &dw = c.out[1];
  LossArgs a = head.args(attrs, c.in[5]);
  a.dloss = c.in[0].as<float>();
  a.targets = c.in[3].as<int32_t>();
  a.stats = c.in[4].as<RowStats>();
  a.to = operand(gradients);
  a.to_stride = head.stride;
  start_scale(launcher, a, scale);
  start_gradients(launcher, a);
  multiply(launcher, {{head.rows, head.width, head.stride, head.stride, head.width, head.width,
                       false, false, false, head.dtype},
                      gradients.data,
                      head.weight(launcher),
                      nullptr,
                      dx.data});
  // The padded weight is no longer needed, so the padded gradient overwrites it.
  void* sums = head.padded ? head.padded : dw.data;
  multiply(launcher, {{head.stride, head.width, head.rows, head.stride, head.width, head.width,
                       true, false, false, head.dtype},
                      gradients.data,
                      head.x.data,
                      nullptr,
                      sums});
  if (head.padded) copy_bytes(launcher, sums, dw.data, dw.bytes());
}

// Creates a kernel (forward or backward) of an output layer that keeps its logits. It calls `run`,
// with scratch memory of `first` bytes followed by a padded weight. x is operand number `operand`.
Made make_kept_head(const Query& query, int64_t operand, int64_t first,
                    void (*run)(Launcher&, const Arguments&, const Attrs&)) {
  const TensorView &x = query.in[static_cast<size_t>(operand)],
                   &w = query.in[static_cast<size_t>(operand + 1)];
  Scratch room(nullptr);
  room.take<std::byte>(first);
  KeptHead(x, w, query.out[2], room);
  return made(
      [=, attrs = query.attrs](Launcher& launcher, const Arguments& c) { run(launcher, c, attrs); },
      room.used());
}

Made make_linear_cross_entropy(const Query& query, std::string*) {
  if (keeps_logits(query.attrs))
    return make_kept_head(query, 0, query.in[0].dims[0] * static_cast<int64_t>(sizeof(double)),
                          make_kept_logits);
  return made(
      [attrs = query.attrs](Launcher& launcher, const Arguments& c) {
        const Head head(c.in[0], c.in[1], c.out[2]);
        Scratch scratch(c.scratch);
        LossArgs a{};
        auto* terms = scratch.take<double>(head.rows);
        for (int64_t first = 0; first < head.words; first += head.block) {
          multiply(launcher, head.product(first));
          a = head.at(first, attrs);
          a.targets = c.in[2].as<int32_t>();
          a.stats = c.out[1].as<RowStats>();
          a.target_logit = c.out[3].as<float>();
          if (smooths(attrs)) a.spread = c.out[4].as<float>();
          start_fold(launcher, a);
        }
        a.terms = terms;
        a.loss = c.out[0].as<float>();
        start_loss(launcher, a);
      },
      bytes_of_loss(query.in[0].dims[0]));
}

Made make_linear_cross_entropy_dx(const Query& query, std::string*) {
  if (keeps_logits(query.attrs))
    return make_kept_head(query, 1, sizeof(float), make_gradients_of_kept);
  const bool narrow = query.in[1].dtype != DS_DTYPE_F32;
  Scratch room(nullptr);
  room.take<float>(1);
  if (narrow) room.take<uint16_t>(query.out[2].numel());
  return made(
      [=, attrs = query.attrs](Launcher& launcher, const Arguments& c) {
        const Head head(c.in[1], c.in[2], c.out[2]);
        // dx is accumulated over the blocks of words in f32, and rounded once at the end.
        const TensorView& sums = c.out[narrow ? 3 : 0];
        Scratch scratch(c.scratch);
        auto* scale = scratch.take<float>(1);
        // The gradients of logits have the type of x, as matrix products require. In f32 they
        // overwrite the logits.
        void* gradients = narrow ? scratch.take<uint16_t>(head.rows * head.block)
                                 : static_cast<void*>(head.logits);
        copy_bytes(launcher, nullptr, sums.data, sums.bytes());
        for (int64_t first = 0; first < head.words; first += head.block) {
          multiply(launcher, head.product(first));
          LossArgs a = head.at(first, attrs);
          a.targets = c.in[3].as<int32_t>();
          a.stats = c.in[4].as<RowStats>();
          a.dloss = c.in[0].as<float>();
          a.to = {gradients, static_cast<int32_t>(head.dtype), 0};
          a.to_stride = head.block;
          if (first == 0) start_scale(launcher, a, scale);
          if (!a.each) a.scale = scale;
          start_gradients(launcher, a);
          const int64_t count = head.count(first);
          // The rows of dw for this block of words are complete after one product over all rows of
          // x, so they are rounded once.
          multiply(launcher, {{count, head.width, head.rows, head.block, head.width, head.width,
                               true, false, false, head.dtype},
                              gradients,
                              head.x,
                              nullptr,
                              c.out[1].as<std::byte>() + head.weight_offset(first)});
          multiply(launcher, {{head.rows, head.width, count, head.block, head.width, head.width,
                               false, false, false, head.dtype, Store::added},
                              gradients,
                              head.weight(first),
                              nullptr,
                              sums.data});
        }
        if (!narrow) return;
        ElementArgs a{};
        a.in[0] = operand(sums), a.out[0] = operand(c.out[0]);
        a.count = sums.numel();
        a.wide = aligned(sums.data) && aligned(c.out[0].data);
        start_elements(launcher, "cast", a);
      },
      room.used());
}

Made make_softmax(const Query& query, std::string*) {
  const bool gradient = query.op == "softmax_dx";
  SoftmaxArgs shape{};
  shape.seq = query.op == "causal_softmax" ? query.attrs.integer("seq") : 0;
  shape.log = query.attrs.integer_or("log", 0) != 0;
  return made([=](Launcher& launcher, const Arguments& c) {
    SoftmaxArgs a = shape;
    a.x = operand(c.in[gradient ? 1 : 0]);
    a.y = operand(c.out[0]);
    a.width = c.in[0].dims[1];
    if (gradient) a.dy = operand(c.in[0]);
    start(launcher, gradient ? "softmax_dx" : "softmax", {static_cast<uint32_t>(c.in[0].dims[0])},
          {kLossThreads}, a, kStatsRoom);
  });
}

Made make_count_targets(const Query&, std::string*) {
  return made([](Launcher& launcher, const Arguments& c) {
    LossArgs a{};
    a.targets = c.in[0].as<int32_t>();
    a.loss = c.out[0].as<float>();
    a.rows = c.in[0].numel();
    start(launcher, "count_targets", {1}, {kLossThreads}, a, kRoom);
  });
}

Made make_mse(const Query& query, std::string*) {
  return made(
      [](Launcher& launcher, const Arguments& c) {
        MeanArgs a{operand(c.in[0]),     operand(c.in[1]), static_cast<double*>(c.scratch),
                   c.out[0].as<float>(), c.in[0].numel(),  0};
        a.blocks = ceil_div(a.count, kMeanShare);
        start(launcher, "mse_partial", {static_cast<uint32_t>(a.blocks)}, {kLossThreads}, a, kRoom);
        start(launcher, "mse_mean", {1}, {kLossThreads}, a, kRoom);
      },
      ceil_div(query.in[0].numel(), kMeanShare) * static_cast<int64_t>(sizeof(double)));
}

// linear, linear_dx and linear_dw are one matrix product each.
Made make_linear(const Query& query, std::string*) {
  MatrixProduct (*product)(const LinearOperands&) = product_of_linear_dw;
  if (query.op == "linear") product = product_of_linear;
  if (query.op == "linear_dx") product = product_of_linear_dx;
  return made([=, attrs = query.attrs](Launcher& launcher, const Arguments& c) {
    multiply(launcher, product(LinearOperands{c.in, c.out, attrs}));
  });
}

constexpr KernelRow kRows[] = {
    {"cross_entropy", make_cross_entropy},
    {"cross_entropy_dx", make_cross_entropy_dx},
    {"linear_cross_entropy", make_linear_cross_entropy},
    {"linear_cross_entropy_dx", make_linear_cross_entropy_dx},
    {"softmax", make_softmax},
    {"causal_softmax", make_softmax},
    {"softmax_dx", make_softmax},
    {"count_targets", make_count_targets, Takes::own},
    {"mse", make_mse},
    {"linear", make_linear},
    {"linear_dx", make_linear},
    {"linear_dw", make_linear},
};

// The function that computes matrix products. use_products() sets it before the first kernel runs.
Multiply chosen = own_multiply;

}  // namespace

void use_products(Multiply by) { chosen = by ? by : own_multiply; }
void multiply(Launcher& launcher, const MatrixProduct& product) { chosen(launcher, product); }

void own_multiply(Launcher& launcher, const MatrixProduct& p) {
  const MatrixShape& s = p.shape;
  const auto at = [](const void* data, DType dtype) {
    return Operand{const_cast<void*>(data), static_cast<int32_t>(dtype), 0};
  };
  ProductArgs a{at(p.a, s.dtype),
                at(p.b, s.dtype),
                at(p.c, s.result()),
                at(p.bias, s.dtype),
                s.m,
                s.n,
                s.k,
                s.lda,
                s.ldb,
                s.ldc,
                s.transpose_a,
                s.transpose_b,
                s.store == Store::added,
                0};
  start(launcher, "product", {blocks(s.m, kProductTile), blocks(s.n, kProductTile)}, {64}, a,
        2 * kProductTile * (kProductTile + 1) * sizeof(float));
}

std::span<const KernelRow> loss_rows() { return kRows; }

}  // namespace ds::cuda
