// The host side of quantize, dequantize and dequantize_sum, which are one launch each.
#include "kernels/cuda/quantize.h"

#include <fmt/core.h>

#include <memory>
#include <span>
#include <string>

#include "core/program/granules.h"
#include "kernels/cuda/element_args.h"
#include "kernels/cuda/host.h"
#include "kernels/cuda/kernel.h"

namespace ds::cuda {
namespace {

using Made = std::unique_ptr<Kernel>;

Made make_quantize(const Query& query, std::string* refusal) {
  if (!takes_floats({query.op, query.in, {}, query.attrs}, refusal)) return nullptr;
  CodesArgs a{};
  a.bits = static_cast<int32_t>(query.attrs.integer("bits"));
  a.reset = query.attrs.integer_or("reset", 0);
  const double beta = query.out.size() == 2 ? query.attrs.real("err_beta") : 0;
  a.keep = static_cast<float>(beta);
  a.take = static_cast<float>(1 - beta);
  return made([=](Launcher& launcher, const Arguments& c) {
    CodesArgs own = a;
    own.x = operand(c.in[0]);
    own.error = c.out.size() == 2 ? c.out[0].as<float>() : nullptr;
    own.codes = c.out.back().as<uint8_t>();
    own.scalars = c.scalars;
    own.granules = c.in[0].numel() / kGranule;
    // Shared memory holds room for two maxima over the block, then 256 codes.
    start(launcher, "quantize", {static_cast<uint32_t>(own.granules)}, {kCodeThreads}, own,
          (2 * 8 + kCodeThreads) * sizeof(float));
  });
}

Made make_dequantize(const Query& query, std::string* refusal) {
  if (!takes_floats({query.op, {}, query.out, query.attrs}, refusal)) return nullptr;
  CodesArgs a{};
  a.bits = static_cast<int32_t>(query.attrs.integer("bits"));
  const bool sum = query.op == "dequantize_sum";
  if (sum) a.ranks = static_cast<int32_t>(query.attrs.integer("ranks"));
  // One thread adds up an element over all ranks, which limits their number.
  if (a.ranks > kMostSummed) {
    *refusal = fmt::format("ranks is {}, but the device can sum the codes of at most {} ranks",
                           a.ranks, kMostSummed);
    return nullptr;
  }
  return made([=](Launcher& launcher, const Arguments& c) {
    CodesArgs own = a;
    own.codes = c.in[0].as<uint8_t>();
    own.x = operand(c.out[0]);
    own.granules = c.out[0].numel() / kGranule;
    start(launcher, sum ? "dequantize_sum" : "dequantize",
          {blocks(own.granules * kGranule, kThreads)}, {kThreads}, own);
  });
}

constexpr KernelRow kRows[] = {{"quantize", make_quantize, Takes::own},
                               {"dequantize", make_dequantize, Takes::own},
                               {"dequantize_sum", make_dequantize, Takes::own}};

}  // namespace

std::span<const KernelRow> quantize_rows() { return kRows; }

}  // namespace ds::cuda
