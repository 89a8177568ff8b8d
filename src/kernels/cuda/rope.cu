// Rotary positions (Su et al., "RoFormer", arXiv:2104.09864). A thread rotates one pair of columns
// of a row in all heads, so that the angle is computed once. Angles are in units of half turns in
// f64, because sincospi then needs no argument reduction, which would use local memory.
//
// Some scalings depend on the length of the text, which only the device knows. For longrope, the
// host launches the entry once for each of its two tables, and only one of the two launches does
// the work.
#include "kernels/cuda/device.h"
#include "kernels/cuda/rope.h"

namespace ds::cuda {

namespace {

// Returns the factor of a pair's rotation that depends on the length of the text: the change of
// theta in the "dynamic" scaling (RopeArgs::power).
DS_DEVICE double slowed(const RopeArgs& a, int64_t pair) {
  if (!a.length || a.power == 0) return 1;
  const double length = *a.length, original = static_cast<double>(a.original);
  const double stretch = (length > original ? length : original) / original;
  const double share = -2.0 * static_cast<double>(pair) / (2 * a.pairs);
  return pow(a.factor * stretch - (a.factor - 1), a.power * share);
}

}  // namespace

DS_LOOP_KERNEL(rope, RopeArgs) {
  const int64_t i = thread_number();
  if (i >= a.rows * a.pairs) return;
  if (a.only != 0 && (*a.length > a.original) != (a.only > 0)) return;
  const int64_t row = i / a.pairs, pair = i % a.pairs;
  const double turn = static_cast<double>(a.positions ? a.positions[row] : row % a.seq) *
                      (a.turns[pair] * slowed(a, pair));
  double sine, cosine;
  // Whole turns are subtracted first, which is exact in f64.
  sincospi(turn - 2 * rint(turn / 2), &sine, &cosine);
  const float c = static_cast<float>(a.magnitude * cosine),
              s = static_cast<float>(a.magnitude * sine);
  const int64_t low = a.interleaved ? 2 * pair : pair, distance = a.interleaved ? 1 : a.pairs;
  for (int h = 0; h < a.heads; ++h) {
    // In a packed qkv, only the first `rotated` heads of every `period` are rotated.
    if (h % a.period >= a.rotated) continue;
    const int64_t first = row * a.width + h * a.depth + low, second = first + distance;
    const float x = get(a.x, first), y = get(a.x, second);
    put(a.y, first, x * c - y * s);
    put(a.y, second, y * c + x * s);
  }
}

}  // namespace ds::cuda
