#include "support/gradient.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ds::test {

double gradient_error(Interpreter& run, const Graph& graph, ValueId loss, ValueId x, ValueId grad,
                      std::vector<int64_t> elements) {
  constexpr double kStep = 1e-5;
  run.run();
  Tensor gradient = run.at(grad);
  double largest = 0, worst = 0;
  for (int64_t e = 0; e < gradient.numel(); ++e)
    largest = std::max(largest, std::abs(gradient.at(e)));
  if (elements.empty()) {
    elements.resize(static_cast<size_t>(gradient.numel()));
    std::iota(elements.begin(), elements.end(), int64_t{0});
  }
  for (int64_t e : elements) {
    double value = run.at(x).at(e), losses[2];
    for (int side = 0; side < 2; ++side) {
      run.at(x).set(e, side == 0 ? value - kStep : value + kStep);
      run.run(graph.backward_begin);
      losses[side] = run.at(loss).at(0);
    }
    run.at(x).set(e, value);
    double error = std::abs((losses[1] - losses[0]) / (2 * kStep) - gradient.at(e));
    worst = std::isnan(error) ? INFINITY : std::max(worst, error);
  }
  return worst / (largest < 1e-12 ? 1 : largest);
}

}  // namespace ds::test
