// The loop of text generation. Caches hold the keys and values of the tokens so far
// (docs/adr/0009), so each step feeds only the tokens that the caches do not hold yet.
#include "generation/generate.h"

#include <algorithm>

#include "core/base/contains.h"
#include "core/base/error.h"

namespace ds {
namespace {

// The text and the range of its tokens that the caches hold, [begin_, begin_ + fed_). If rotations
// depend on the length of the text, the keys in the caches may be wrong for the longer text. The
// tokens from begin_ on are then fed again (Generation::reusable).
class Window {
 public:
  Window(Generation& generation, std::span<const int32_t> prompt)
      : generation_(generation), text_(prompt.begin(), prompt.end()) {}

  // Feeds the tokens that the caches lack and returns the logits of the next token.
  std::vector<float> logits() {
    auto most = static_cast<size_t>(generation_.positions());
    if (text_.size() - begin_ > most) {
      begin_ = text_.size() - (most + 1) / 2;
      fed_ = 0;
    }
    fed_ = std::min(fed_, static_cast<size_t>(
                              generation_.reusable(static_cast<int64_t>(text_.size() - begin_))));
    std::span<const int32_t> fresh = std::span(text_).subspan(begin_ + fed_);
    std::vector<float> out = generation_.decode(fresh, static_cast<int64_t>(fed_));
    fed_ += fresh.size();
    return out;
  }
  void push(int32_t token) { text_.push_back(token); }

 private:
  Generation& generation_;
  std::vector<int32_t> text_;
  size_t begin_ = 0, fed_ = 0;
};

}  // namespace

std::vector<int32_t> generate(Generation& generation, std::span<const int32_t> prompt,
                              const GenerationOptions& options,
                              const std::function<bool(int32_t)>& each) {
  require(!prompt.empty(), "prompt must have at least one token, got none");
  require(options.tokens >= 0, "tokens must be >= 0, got {}", options.tokens);
  auto length = static_cast<int64_t>(prompt.size());
  require(
      options.roll || length + options.tokens <= generation.positions(),
      "the prompt has {} tokens and {} are requested: together they must be at most {} positions",
      length, options.tokens, generation.positions());
  Window window(generation, prompt);
  std::vector<int32_t> fresh;
  for (int64_t position = 0; position < options.tokens; ++position) {
    fresh.push_back(sample_token(window.logits(), options.sampling, position));
    window.push(fresh.back());
    if (each && !each(fresh.back())) break;
    if (contains(options.ends, fresh.back())) break;
  }
  return fresh;
}

}  // namespace ds
