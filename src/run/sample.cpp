#include "run/sample.h"

#include "data/tokenizer.h"
#include "inference/generate.h"
#include "run/generate.h"
#include "run/stop.h"

namespace ds {
namespace {

constexpr int64_t kPromptTokens = 48;
constexpr SamplingOptions kRunSampling{0.8, 40, 0};

}  // namespace

std::string run_sample(Engine& engine, const RunData& data, const volatile int32_t* stop) {
  int64_t tokens = engine.config().run.sample_tokens;
  if (tokens <= 0) return "";
  std::vector<int32_t> prompt = data.prompt(kPromptTokens);
  if (prompt.empty()) return "";
  auto go_on = [&](int32_t) { return !stop_asked_of_any(engine.comm(), stop); };
  GenerateOptions options{tokens, kRunSampling, {}, true};
  std::vector<int32_t> all = prompt, more = generate(engine, prompt, options, go_on);
  all.insert(all.end(), more.begin(), more.end());
  return readable(data.tokenizer()->decode(all));
}

}  // namespace ds
