// Rotary positions. A thread has one pair of columns of a row in all heads, so that an angle is
// formed once. Angles are reduced in f64, as half turns: sin and cos of them need no long
// reduction, which would take local memory.
//
// The length of a text, which angles of some scalings follow, is known on the device alone.
// longrope starts the entry once for each of its two tables, and one of the two works.
#include "kernels/cuda/device.h"
#include "kernels/cuda/rope.h"

namespace ds::cuda {

namespace {

// What the length of the text makes of the turns of a pair.
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
  sincospi(turn - 2 * rint(turn / 2), &sine, &cosine);
  const float c = static_cast<float>(a.magnitude * cosine),
              s = static_cast<float>(a.magnitude * sine);
  const int64_t low = a.interleaved ? 2 * pair : pair, distance = a.interleaved ? 1 : a.pairs;
  for (int h = 0; h < a.heads; ++h) {
    if (h % a.period >= a.rotated) continue;
    const int64_t first = row * a.width + h * a.depth + low, second = first + distance;
    const float x = get(a.x, first), y = get(a.x, second);
    put(a.y, first, x * c - y * s);
    put(a.y, second, y * c + x * s);
  }
}

}  // namespace ds::cuda
