#include "engine/decode.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/half.h"
#include "core/graph/ops/rope_length.h"
#include "engine/core.h"
#include "passes/decode.h"

namespace ds {

Decoding::Decoding(const DecodePlan& plan, std::unique_ptr<Executor> executor,
                   std::function<std::byte*(BufferId)> address)
    : plan_(plan), executor_(std::move(executor)), address_(std::move(address)) {
  for (InputId i : plan_.graph.inputs.ids()) {
    const Value& value = plan_.graph.values[plan_.graph.inputs[i]];
    if (value.type.dtype != DS_DTYPE_I32) continue;  // a cache
    bool tokens = value.name == kTokensInput, places = value.name == kDecodePositions,
         length = value.name == kDecodeLength;
    if (!tokens && !places && !length && value.name != "positions") {
      raise(DS_ERROR_UNSUPPORTED, "text cannot be continued: the model's input '{}' has no value there",
            value.name);
    }
    Content content = tokens   ? Content::tokens
                      : places ? Content::places
                      : length ? Content::length
                               : Content::table_rows;
    feeds_.push_back({content, plan_.inputs[i]});
  }
  ValueId length = plan_.graph.find_value(kDecodeLength);
  for (const Node& node : plan_.graph.nodes) {
    if (!length.exists() || std::find(node.in.begin(), node.in.end(), length) == node.in.end()) continue;
    bool known = std::find(ropes_.begin(), ropes_.end(), node.attrs) != ropes_.end();
    if (!known) ropes_.push_back(node.attrs);
  }
}

int64_t Decoding::vocabulary() const { return plan_.graph.type(plan_.graph.outputs[0]).shape[1].extent; }

int64_t Decoding::reusable(int64_t length) const {
  bool same = std::all_of(ropes_.begin(), ropes_.end(),
                          [&](const Attrs& rope) { return same_rotations(rope, length_, length); });
  return same ? fed_ : 0;
}

void Decoding::check(std::span<const int32_t> tokens, int64_t first) const {
  require(!tokens.empty(), "prompt must have at least one token, got none");
  auto count = static_cast<int64_t>(tokens.size());
  require(first >= 0 && first <= fed_, "first must be 0 to {}, the tokens fed so far, got {}", fed_, first);
  require(first + count <= positions(), "the text must have at most {} tokens, got {}", positions(),
          first + count);
  require(first <= reusable(first + count),
          "first must be 0, got {}: the rope of a text of {} tokens turns keys differently from that of {} "
          "tokens, which the cached ones were fed for",
          first, first + count, length_);
  for (size_t i = 0; i < tokens.size(); ++i) {
    require(tokens[i] >= 0 && tokens[i] < vocabulary(), "token {} must be 0 to {}, got {}",
            first + static_cast<int64_t>(i), vocabulary() - 1, tokens[i]);
  }
}

void Decoding::put(std::span<const int32_t> tokens, int64_t first, int64_t length) {
  for (const Feed& feed : feeds_) {
    auto* to = reinterpret_cast<int32_t*>(address_(feed.buffer));
    if (feed.content == Content::tokens) {
      std::copy(tokens.begin(), tokens.end(), to);
      continue;
    }
    if (feed.content == Content::length) {
      *to = static_cast<int32_t>(length);
      continue;
    }
    int64_t start = first + (feed.content == Content::table_rows ? plan_.position_offset : 0);
    for (size_t r = 0; r < tokens.size(); ++r) to[r] = static_cast<int32_t>(start + static_cast<int64_t>(r));
  }
}

std::vector<float> Decoding::feed(std::span<const int32_t> tokens, int64_t first) {
  fed_ = first;
  length_ = first + static_cast<int64_t>(tokens.size());
  while (!tokens.empty()) {
    size_t n = std::min(tokens.size(), static_cast<size_t>(plan_.graph.bound));
    executor_->set_extent(0, static_cast<int64_t>(n));
    put(tokens.first(n), fed_, length_);
    executor_->run();
    fed_ += static_cast<int64_t>(n);
    tokens = tokens.subspan(n);
  }
  return logits();
}

std::vector<float> Decoding::logits() const {
  std::vector<float> out(static_cast<size_t>(vocabulary()));
  widen(plan_.graph.type(plan_.graph.outputs[0]).dtype, address_(plan_.logits), vocabulary(), out.data());
  return out;
}

int64_t EngineCore::positions() { return decoding() ? decoding()->positions() : 0; }

int64_t EngineCore::reusable(int64_t length) { return decoding() ? decoding()->reusable(length) : 0; }

std::vector<float> EngineCore::decode(std::span<const int32_t> tokens, int64_t first) {
  require_idle("decode");
  require_refreshed();
  Decoding* text = decoding();
  if (!text) raise(DS_ERROR_STATE, "decode needs an engine made for it: positions must be > 0, got 0");
  text->check(tokens, first);
  scalars_.train = 0;
  std::vector<float> logits;
  guarded([&] { logits = text->feed(tokens, first); });
  return logits;
}

std::unique_ptr<Decoding> EngineCore::make_decoding(const DecodePlan& plan) {
  return std::make_unique<Decoding>(plan, executor(plan.program),
                                    [this](BufferId id) { return address(id); });
}

void EngineCore::forget_text() {
  if (Decoding* text = decoding()) text->forget();
}

}  // namespace ds
