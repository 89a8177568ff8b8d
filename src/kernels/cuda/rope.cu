// Rotary positions. A thread has one pair of columns of a row in all heads, so that an angle is formed once.
// Angles are reduced in f64, as half turns: sin and cos of them need no long reduction, which would take
// local memory.
#include "kernels/cuda/device.h"
#include "kernels/cuda/rope_args.h"

namespace ds::cuda {

DS_LOOP_KERNEL(rope, RopeArgs) {
  const int64_t i = thread_number();
  if (i >= a.rows * a.pairs) return;
  const int64_t row = i / a.pairs, pair = i % a.pairs;
  const double turn = static_cast<double>(a.positions ? a.positions[row] : row % a.seq) * a.turns[pair];
  double sine, cosine;
  sincospi(turn - 2 * rint(turn / 2), &sine, &cosine);
  const float c = static_cast<float>(a.magnitude * cosine), s = static_cast<float>(a.magnitude * sine);
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
