// The head and the loss of the device in one operation, compared with the two operations.
#include <fmt/core.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/round.h"
#include "cuda/device_cases.h"
#include "support/dice.h"

namespace ds::test {
namespace {

struct Head {
  int64_t rows, width, words;
  Attrs attrs;
};

// Returns some heads with fixed extents and some random ones: odd extents, a single word, a single
// row, all targets masked.
std::vector<Head> heads() {
  const Attrs all{{"label_smoothing", 0.1}, {"z_loss", 1e-3}, {"reduction", "none"}};
  std::vector<Head> heads{
      {9, 24, 50, {}}, {9, 24, 50, all}, {33, 64, 4099, {}}, {33, 64, 4099, all}, {5, 8, 16, all}};
  Dice dice(84);
  for (int i = 0; i < 8; ++i) {
    Head& h =
        heads.emplace_back(Head{1 + dice.below(40), 1 + dice.below(70), 1 + dice.below(500), {}});
    if (dice.one_in(2)) h.attrs.set("label_smoothing", 0.1);
    if (dice.one_in(2)) h.attrs.set("z_loss", 1e-3);
    h.attrs.set("reduction", dice.pick({"mean", "sum", "none"}));
  }
  return heads;
}

// Returns logits in the layout in which a head keeps them: rows padded to a multiple of eight.
Tensor in_eights(const Tensor& logits) {
  const int64_t rows = logits.dims()[0], words = logits.dims()[1], stride = round_up(words, 8);
  Tensor out(DS_DTYPE_F64, {rows, stride});
  for (int64_t i = 0; i < rows * words; ++i) out.set(i / words * stride + i % words, logits.at(i));
  return out;
}

std::string first_difference(const std::vector<Tensor>& got, const std::vector<Tensor>& want,
                             double tolerance) {
  for (size_t i = 0; i < want.size(); ++i) {
    for (int64_t e = 0; e < want[i].numel(); ++e) {
      const double there = want[i].at(e), here = got[i].at(e);
      if (std::abs(here - there) <= tolerance * (1 + std::abs(there))) continue;
      return fmt::format("output {} element {}: got {}, want {}", i, e, here, there);
    }
  }
  return "";
}

}  // namespace

std::string kept_head(const RunCase& run, DType dtype, double tolerance) {
  uint64_t seed = 81;
  for (const Head& h : heads()) {
    const Tensor x = random_tensor(DS_DTYPE_F64, {h.rows, h.width}, seed++),
                 w = random_tensor(DS_DTYPE_F64, {h.words, h.width}, seed++);
    Tensor targets = random_ids(h.rows, h.words, seed++);
    targets.set(h.rows / 2, -100);
    const Tensor logits = run({"linear", {}, {x, w}}, dtype)[0];
    const std::vector<Tensor> want = run({"cross_entropy", h.attrs, {logits, targets}}, dtype);
    Attrs kept = h.attrs;
    kept.set("kept", int64_t{1});
    const std::vector<Tensor> got = run({"linear_cross_entropy", kept, {x, w, targets}}, dtype);
    std::string differs = first_difference(got, want, tolerance);
    if (differs.empty()) {
      const Tensor dloss = random_tensor(DS_DTYPE_F64, want[0].dims(), seed++),
                   dlogits = run({"cross_entropy_dx", h.attrs, {dloss, logits, targets, want[1]}},
                                 dtype)[0];
      differs = first_difference(
          run({"linear_cross_entropy_dx", kept, {dloss, x, w, targets, got[1], in_eights(logits)}},
              dtype),
          {run({"linear_dx", {}, {dlogits, w}}, dtype)[0],
           run({"linear_dw", {}, {dlogits, x}}, dtype)[0]},
          tolerance);
    }
    if (!differs.empty())
      return fmt::format("{} rows, {} columns, {} words, {}: {}", h.rows, h.width, h.words,
                         dtype_name(dtype), differs);
  }
  return "";
}

}  // namespace ds::test
