#include "run/run_sample.h"

#include <fmt/format.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/utf8.h"
#include "data/tokenizer.h"
#include "generation/generate.h"
#include "generation/generate_text.h"
#include "generation/sampler.h"
#include "monitor/readable_text.h"
#include "run/keys.h"
#include "run/setup.h"
#include "run/stop.h"

namespace ds {
namespace {

// Temperature 0.8, the 40 most likely tokens, seed 0.
constexpr SamplingOptions kRunSampling{0.8, 40, 0};

// Returns the text with a line break and `mark` before every line.
std::string marked(std::string_view text, std::string_view mark) {
  std::string out;
  while (true) {
    size_t end = text.find('\n');
    out += fmt::format("\n{}{}", mark, text.substr(0, end));
    if (end == text.npos) return out;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

SampleRecord run_sample(Engine& engine, const RunData& data, const volatile int32_t* stop) {
  SampleRecord out{engine.control().steps(), "", ""};
  int64_t tokens = engine.runtime().config().get<RunKeys>().sample_tokens;
  if (tokens <= 0) return out;
  std::vector<int32_t> prompt = data.prompt(kSamplePrompt);
  if (prompt.empty()) return out;
  // All ranks must stop at the same token, so the stop flags of all ranks are combined after every
  // token.
  auto go_on = [&](int32_t) { return !stop_asked_of_any(engine.runtime().comm(), stop); };
  GenerationOptions options{tokens, kRunSampling, {}, true};
  std::vector<int32_t> all = prompt, more = generate(engine.generation(), prompt, options, go_on);
  all.insert(all.end(), more.begin(), more.end());
  out.prompt = data.tokenizer()->decode(prompt);
  out.text = data.tokenizer()->decode(all);
  // The border between prompt and continuation may split a character, so the text of all tokens
  // does not always begin with the text of the prompt.
  if (out.text.starts_with(out.prompt)) {
    out.text.erase(0, out.prompt.size());
  } else {
    // The last character of the prompt ends in the continuation.
    out.prompt.clear();
  }
  out.prompt = readable(out.prompt);
  out.text = readable(out.text);
  return out;
}

std::string sample_text(const SampleRecord& sample, bool with_prompt) {
  std::string out;
  if (with_prompt && !sample.prompt.empty()) {
    out = "samples continue this beginning of the held-out text:" +
          marked(show_controls(sample.prompt), "  > ") + "\n";
  }
  out += fmt::format("sample {}:", after_step(sample.step));
  return out + marked(show_controls(sample.text), "  | ");
}

}  // namespace ds
