// Rotary position embeddings. Computing sines and cosines would take most of the time, so a task
// has 32 consecutive positions of all sequences or, if positions are an operand, 32 rows. It
// computes sine and cosine for the first position and derives the values for the next positions
// with the angle addition formulas, in f64.
#include "kernels/formulas/rope.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// The number of positions in one task. The rounding errors of this many steps in f64 add up to far
// less than one rounding error in f32.
constexpr int64_t kPositions = 32;

// The cos and sin of every pair at the current position, stored in the task's scratch.
class Angles {
 public:
  Angles(const Rope& rope, int64_t position, std::span<std::byte> scratch)
      : pairs_(rope.dims / 2), magnitude_(rope.magnitude) {
    size_t need = static_cast<size_t>(pairs_) * (4 * sizeof(double) + 2 * sizeof(float));
    ensure(need <= scratch.size(), "rope needs {} bytes of scratch per thread, but the team has {}",
           need, scratch.size());
    cos_ = reinterpret_cast<double*>(scratch.data());
    sin_ = cos_ + pairs_;
    cos_step_ = sin_ + pairs_;
    sin_step_ = cos_step_ + pairs_;
    cosine = reinterpret_cast<float*>(sin_step_ + pairs_);
    sine = cosine + pairs_;
    for (int64_t i = 0; i < pairs_; ++i) {
      double frequency = rope.frequency(i), angle = static_cast<double>(position) * frequency;
      cos_[i] = std::cos(angle);
      sin_[i] = std::sin(angle);
      cos_step_[i] = std::cos(frequency);
      sin_step_[i] = std::sin(frequency);
    }
    round();
  }

  // Moves on to the next position. For every pair, cos(a + b) = cos a cos b - sin a sin b and sin(a
  // + b) = sin a cos b + cos a sin b.
  void advance() {
    for (int64_t i = 0; i < pairs_; ++i) {
      double cos = cos_[i] * cos_step_[i] - sin_[i] * sin_step_[i];
      sin_[i] = sin_[i] * cos_step_[i] + cos_[i] * sin_step_[i];
      cos_[i] = cos;
    }
    round();
  }

  // cos and sin of the current position, times the magnitude.
  float *cosine, *sine;

 private:
  void round() {
    for (int64_t i = 0; i < pairs_; ++i) {
      cosine[i] = static_cast<float>(magnitude_ * cos_[i]);
      sine[i] = static_cast<float>(magnitude_ * sin_[i]);
    }
  }

  int64_t pairs_;
  double magnitude_;
  double *cos_, *sin_, *cos_step_, *sin_step_;
};

// Rotates the pairs of one head: (a, b) becomes (a cos - b sin, b cos + a sin). Columns from dims
// on are copied.
template <typename T>
HWY_INLINE void turn_head(const Rope& rope, const Angles& angles, const T* x, T* y) {
  int64_t pairs = rope.dims / 2;
  // Models with interleaved pairs are rare, so these are rotated one by one.
  if (rope.interleaved) {
    for (int64_t i = 0; i < pairs; ++i) {
      float a = static_cast<float>(x[2 * i]), b = static_cast<float>(x[2 * i + 1]);
      y[2 * i] = T(a * angles.cosine[i] - b * angles.sine[i]);
      y[2 * i + 1] = T(b * angles.cosine[i] + a * angles.sine[i]);
    }
  } else {
    auto left = [](Vec a, Vec b, Vec cos, Vec sin)
                    HWY_ATTR { return hn::NegMulAdd(b, sin, hn::Mul(a, cos)); };
    auto right = [](Vec a, Vec b, Vec cos, Vec sin)
                     HWY_ATTR { return hn::MulAdd(a, sin, hn::Mul(b, cos)); };
    map(0, pairs, y, left, x, x + pairs, angles.cosine, angles.sine);
    map(0, pairs, y + pairs, right, x, x + pairs, angles.cosine, angles.sine);
  }
  std::copy(x + rope.dims, x + rope.depth, y + rope.dims);
}

// Rotates the heads of a row for which Rope::turns() is true, and copies the others.
template <typename T>
HWY_INLINE void turn_row(const Rope& rope, const Angles& angles, const T* x, T* y) {
  for (int64_t h = 0; h < rope.heads; ++h) {
    const T* from = x + h * rope.depth;
    T* to = y + h * rope.depth;
    if (rope.turns(h)) {
      turn_head(rope, angles, from, to);
    } else {
      std::copy(from, from + rope.depth, to);
    }
  }
}

// Runs rope with row r at positions[r]. While positions are consecutive, the angles advance;
// otherwise they are computed from scratch.
template <typename T>
void rope_at(const KernelContext& c, const Rope& rope) {
  const T* x = c.in[0].as<T>();
  const int32_t* positions = c.in[1].as<int32_t>();
  T* y = c.out[0].as<T>();
  int64_t rows = c.in[0].dims[0], width = c.in[0].dims[1];
  for_tasks(c.team, ceil_div(rows, kPositions), [&](int64_t task, int thread) HWY_ATTR {
    int64_t begin = task * kPositions, end = std::min(rows, begin + kPositions);
    Angles angles(rope, positions[begin], c.team.scratch(thread));
    for (int64_t r = begin; r < end; ++r) {
      if (r > begin && positions[r] == positions[r - 1] + 1) {
        angles.advance();
      } else if (r > begin) {
        angles = Angles(rope, positions[r], c.team.scratch(thread));
      }
      turn_row(rope, angles, x + r * width, y + r * width);
    }
  });
}

template <typename T>
void rope(const KernelContext& c) {
  const T* x = c.in[0].as<T>();
  T* y = c.out[0].as<T>();
  int64_t rows = c.in[0].dims[0], width = c.in[0].dims[1];
  const Rope rope(c.attrs, width, c.in.size() == 3 ? c.in[2].as<int32_t>()[0] : 0);
  if (c.in.size() >= 2) return rope_at<T>(c, rope);
  int64_t positions = std::min(rope.seq, rows);
  for_tasks(c.team, ceil_div(positions, kPositions), [&](int64_t task, int thread) HWY_ATTR {
    int64_t begin = task * kPositions, end = std::min(positions, begin + kPositions);
    Angles angles(rope, begin, c.team.scratch(thread));
    for (int64_t p = begin; p < end; ++p) {
      if (p > begin) angles.advance();
      for (int64_t r = p; r < rows; r += rope.seq)
        turn_row(rope, angles, x + r * width, y + r * width);
    }
  });
}

void add_rope(KernelRegistry& registry) {
  add_by_type(registry, "rope", []<typename T>() { return rope<T>; });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
