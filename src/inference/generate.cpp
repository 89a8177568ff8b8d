#include "inference/generate.h"

#include <algorithm>

#include "core/base/error.h"

namespace ds {

std::vector<int32_t> generate(Engine& engine, std::span<const int32_t> prompt, int64_t tokens,
                              const SamplingOptions& options, const std::function<bool(int32_t)>& each) {
  require(!prompt.empty(), "prompt must have at least one token, got none");
  require(tokens >= 0, "tokens must be >= 0, got {}", tokens);
  const Graph& graph = engine.plan().graph;
  for (ValueId input : graph.inputs) {
    require(graph.type(input).dtype == DS_DTYPE_I32, "generation needs i32 inputs, got '{}' of {}",
            graph.values[static_cast<size_t>(input)].name, graph.type(input).text());
  }
  auto window = static_cast<size_t>(std::min(engine.config().sequence, graph.bound));
  const std::vector<int32_t> no_targets(window, -100);
  std::vector<int32_t> text(prompt.begin(), prompt.end());
  for (int64_t position = 0; position < tokens; ++position) {
    size_t n = std::min(text.size(), window);
    auto rows = static_cast<int64_t>(n);
    std::vector<InputView> inputs{{text.data() + (text.size() - n), DS_DTYPE_I32, rows}};
    inputs.resize(graph.inputs.size(), {no_targets.data(), DS_DTYPE_I32, rows});
    std::vector<float> logits = engine.infer(inputs);
    size_t vocabulary = logits.size() / n;
    std::span<const float> last(logits.data() + (n - 1) * vocabulary, vocabulary);
    text.push_back(sample_token(last, options, position));
    if (each && !each(text.back())) break;
  }
  return {text.begin() + static_cast<std::ptrdiff_t>(prompt.size()), text.end()};
}

}  // namespace ds
