#include "engine/decode.h"

#include <algorithm>

#include "core/base/error.h"
#include "engine/core.h"
#include "passes/decode.h"

namespace ds {
namespace {

enum class Feed { tokens, places, table_rows, cache };

// What an input of a decode graph holds.
Feed feed_of(const Value& value) {
  if (value.type.dtype != DS_DTYPE_I32) return Feed::cache;
  if (value.name == kTokensInput) return Feed::tokens;
  if (value.name == kDecodePositions) return Feed::places;
  if (value.name == "positions") return Feed::table_rows;
  raise(DS_ERROR_UNSUPPORTED, "text cannot be continued: the model's input '{}' has no value there",
        value.name);
}

}  // namespace

Decoding::Decoding(const DecodePlan& plan, std::unique_ptr<Executor> executor,
                   std::function<std::byte*(BufferId)> address)
    : plan_(plan), executor_(std::move(executor)), address_(std::move(address)) {
  for (ValueId in : plan_.graph.inputs) feed_of(plan_.graph.values[static_cast<size_t>(in)]);
}

int64_t Decoding::vocabulary() const { return plan_.graph.type(plan_.graph.outputs[0]).shape[1].extent; }

void Decoding::check(std::span<const int32_t> tokens, int64_t first) const {
  require(!tokens.empty(), "prompt must have at least one token, got none");
  auto count = static_cast<int64_t>(tokens.size());
  require(first >= 0 && first <= fed_, "first must be 0 to {}, the tokens fed so far, got {}", fed_, first);
  require(first + count <= positions(), "the text must have at most {} tokens, got {}", positions(),
          first + count);
  for (size_t i = 0; i < tokens.size(); ++i) {
    require(tokens[i] >= 0 && tokens[i] < vocabulary(), "token {} must be 0 to {}, got {}",
            first + static_cast<int64_t>(i), vocabulary() - 1, tokens[i]);
  }
}

void Decoding::put(std::span<const int32_t> tokens, int64_t first) {
  const Graph& g = plan_.graph;
  for (size_t i = 0; i < g.inputs.size(); ++i) {
    Feed feed = feed_of(g.values[static_cast<size_t>(g.inputs[i])]);
    if (feed == Feed::cache) continue;
    auto* to = reinterpret_cast<int32_t*>(address_(plan_.inputs[i]));
    if (feed == Feed::tokens) {
      std::copy(tokens.begin(), tokens.end(), to);
      continue;
    }
    int64_t start = first + (feed == Feed::table_rows ? plan_.position_offset : 0);
    for (size_t r = 0; r < tokens.size(); ++r) to[r] = static_cast<int32_t>(start + static_cast<int64_t>(r));
  }
}

std::vector<float> Decoding::feed(std::span<const int32_t> tokens, int64_t first) {
  fed_ = first;
  while (!tokens.empty()) {
    size_t n = std::min(tokens.size(), static_cast<size_t>(plan_.graph.bound));
    executor_->set_extent(0, static_cast<int64_t>(n));
    put(tokens.first(n), fed_);
    executor_->run();
    fed_ += static_cast<int64_t>(n);
    tokens = tokens.subspan(n);
  }
  return logits();
}

std::vector<float> Decoding::logits() const {
  std::vector<float> out(static_cast<size_t>(vocabulary()));
  const std::byte* data = address_(plan_.logits);
  bool half = plan_.graph.type(plan_.graph.outputs[0]).dtype == DS_DTYPE_BF16;
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = half ? static_cast<float>(reinterpret_cast<const bf16*>(data)[i])
                  : reinterpret_cast<const float*>(data)[i];
  }
  return out;
}

int64_t EngineCore::positions() const { return decoding_ ? decoding_->positions() : 0; }

std::vector<float> EngineCore::decode(std::span<const int32_t> tokens, int64_t first) {
  require_idle("decode");
  if (!decoding_) raise(DS_ERROR_STATE, "decode needs an engine made for it: positions must be > 0, got 0");
  decoding_->check(tokens, first);
  scalars_.train = 0;
  std::vector<float> logits;
  guarded([&] { logits = decoding_->feed(tokens, first); });
  return logits;
}

void EngineCore::make_decoding(const DecodePlan& plan) {
  decoding_ =
      std::make_unique<Decoding>(plan, executor(plan.program), [this](BufferId id) { return address(id); });
}

}  // namespace ds
