// 1-bit compression with error feedback (Tang et al., "1-bit Adam", arXiv:2102.02888): a tensor is
// sent as the signs of its elements and one scale, the root of their mean square. An exchange has
// two halves. In the first, each rank adds its error to the tensor (add_error) and packs the signs
// of every rank's chunk (pack_signs, `ways` = ranks). In the second, each rank averages the signs
// that it received for its chunk (mean_signs), packs the mean (pack_signs, `ways` = 1) and sends it
// to all ranks, which unpack it (unpack_signs). Each half keeps a separate error.
#include "kernels/formulas/signs.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/base/round.h"
#include "core/program/signs.h"
#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// Returns +scale if bit e is set, otherwise -scale. The first element of a byte is its highest bit.
float signed_scale(const uint8_t* bits, int64_t e, float scale) {
  return (bits[e / 8] >> (7 - e % 8) & 1) != 0 ? scale : -scale;
}

// Stores the sum of squares of every kSignSum elements of x, added in element order in f64.
void sum_squares(const float* x, int64_t count, double* sums) {
  for (int64_t first = 0; first < count; first += kSignSum) {
    double sum = 0;
    for (int64_t e = first; e < std::min(count, first + kSignSum); ++e)
      sum += static_cast<double>(x[e]) * static_cast<double>(x[e]);
    sums[first / kSignSum] = sum;
  }
}

// error += x. Also stores the sums of squares of the error, from which the scale is computed.
// Chunks are padded, so ranks * chunk may exceed numel.
void add_error(const KernelContext& c) {
  if (skip_signs(c)) return;
  const float* x = c.in[0].as<float>();
  float* error = c.out[0].as<float>();
  double* sums = c.out[1].as<double>();
  int64_t ranks = c.attrs.integer("ranks");
  for_sign_tensors(c.runs, ranks, ranks, [&](const SignTensor& t) {
    float* v = error + ranks * t.first;
    for (int64_t e = 0; e < t.numel; ++e) v[e] = x[t.begin + e] + v[e];
    sum_squares(v, ranks * t.chunk, sums + t.sums);
  });
}

// error += the mean over ranks of their decoded signs. Also stores the sums of squares of the
// error.
void mean_signs(const KernelContext& c) {
  if (skip_signs(c)) return;
  const auto* blocks = c.in[0].as<uint8_t>();
  float* error = c.out[0].as<float>();
  double* sums = c.out[1].as<double>();
  int64_t ranks = c.attrs.integer("ranks"), block = c.in[0].numel() / ranks;
  for_sign_tensors(c.runs, ranks, 1, [&](const SignTensor& t) {
    float* v = error + t.first;
    for (int64_t e = 0; e < t.chunk; ++e) {
      float mean = 0;
      for (int64_t r = 0; r < ranks; ++r) {
        const uint8_t* theirs = blocks + r * block;
        // Each rank contributes +scale / ranks or -scale / ranks, added in rank order.
        float share = load_scale(theirs, t.index) / static_cast<float>(ranks);
        mean += signed_scale(theirs + t.bits, e, share);
      }
      v[e] = mean + v[e];
    }
    sum_squares(v, t.chunk, sums + t.sums);
  });
}

// Packs the signs and the scale of each tensor, and subtracts the decoded signs from the error.
void pack_signs(const KernelContext& c) {
  if (skip_signs(c)) return;
  const double* sums = c.in[0].as<double>();
  float* error = c.out[0].as<float>();
  auto* codes = c.out[1].as<uint8_t>();
  int64_t ranks = c.attrs.integer("ranks"), ways = c.attrs.integer("ways"),
          block = c.out[1].numel() / ways;
  for_sign_tensors(c.runs, ranks, ways, [&](const SignTensor& t) {
    float scale = scale_of_sums(sums + t.sums, ways * t.chunk);
    float* v = error + ways * t.first;
    for (int64_t w = 0; w < ways; ++w) {
      uint8_t* to = codes + w * block;
      std::memcpy(to + t.index * int64_t{sizeof scale}, &scale, sizeof scale);
      std::fill_n(to + t.bits, t.chunk / 8, uint8_t{0});
      for (int64_t e = 0; e < t.chunk; ++e) {
        float& value = v[w * t.chunk + e];
        // The sign of +0 and of -0 is +.
        bool up = value >= 0;
        if (up) to[t.bits + e / 8] = static_cast<uint8_t>(to[t.bits + e / 8] | 1 << (7 - e % 8));
        value = value - (up ? scale : -scale);
      }
    }
  });
}

// y = the decoded signs. Block r holds chunk r of each tensor.
void unpack_signs(const KernelContext& c) {
  if (c.scalars.skip != 0) return;
  const auto* blocks = c.in[0].as<uint8_t>();
  float* y = c.out[0].as<float>();
  int64_t ranks = c.attrs.integer("ranks"), block = c.in[0].numel() / ranks;
  for_sign_tensors(c.runs, ranks, ranks, [&](const SignTensor& t) {
    for (int64_t e = 0; e < t.numel; ++e) {
      const uint8_t* from = blocks + e / t.chunk * block;
      y[t.begin + e] = signed_scale(from + t.bits, e % t.chunk, load_scale(from, t.index));
    }
  });
}

}  // namespace

void add_signs(KernelRegistry& registry) {
  add_kernel(registry, "add_error", add_error);
  add_kernel(registry, "mean_signs", mean_signs);
  add_kernel(registry, "pack_signs", pack_signs);
  add_kernel(registry, "unpack_signs", unpack_signs);
}

}  // namespace ds::ref
