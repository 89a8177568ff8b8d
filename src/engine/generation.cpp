// Problem: each further token of a text should cost one run over that token, not over the whole
// text. The program keeps the keys and values of earlier tokens in caches.
// Invariant: the caches hold the first fed_ positions of the text, computed with the parameters of
// version_ and rotated for a text of length_ tokens. fed() is 0 as soon as parameters change or
// another program runs, because all programs share the memory of the caches; reusable() also
// compares rotations.
#include "engine/generation.h"

#include <algorithm>
#include <numeric>

#include "compile/decode_plan.h"
#include "core/base/error.h"
#include "core/graph/ops/rope_length.h"
#include "passes/decode_graph.h"

namespace ds {

Generation::Generation(const DecodePlaces& plan, Executor& executor, Runtime& runtime,
                       StepControl& control, StateStore& store)
    : plan_(plan), executor_(executor), runtime_(runtime), control_(control), store_(store) {
  for (InputId i : plan_.graph.inputs.ids()) {
    const Value& value = plan_.graph.values[plan_.graph.inputs[i]];
    if (is_cache(value)) continue;
    bool tokens = value.name == kTokensInput, places = value.name == kDecodePositions,
         length = value.name == kDecodeLength;
    if (!tokens && !places && !length && value.name != "positions") {
      raise(DS_ERROR_UNSUPPORTED,
            "text cannot be continued: the model's input '{}' has no value there", value.name);
    }
    Content content = tokens   ? Content::tokens
                      : places ? Content::places
                      : length ? Content::length
                               : Content::table_rows;
    feeds_.push_back({content, plan_.inputs[i]});
  }
  // Lists the rotary embeddings (ropes) whose rotations depend on the length of the text, each kind
  // once. Their nodes read the input `length`.
  ValueId length = plan_.graph.find_value(kDecodeLength);
  for (const Node& node : plan_.graph.nodes) {
    if (!length.exists() || std::find(node.in.begin(), node.in.end(), length) == node.in.end())
      continue;
    bool known = std::find(ropes_.begin(), ropes_.end(), node.attrs) != ropes_.end();
    if (!known) ropes_.push_back(node.attrs);
  }
}

int64_t Generation::vocabulary() const {
  return plan_.graph.type(plan_.graph.outputs[0].value).shape[1].extent;
}

int64_t Generation::reusable(int64_t length) const {
  bool same = std::all_of(ropes_.begin(), ropes_.end(),
                          [&](const Attrs& rope) { return same_rotations(rope, length_, length); });
  return same ? fed() : 0;
}

void Generation::check(std::span<const int32_t> tokens, int64_t first) const {
  require(!tokens.empty(), "prompt must have at least one token, got none");
  auto count = static_cast<int64_t>(tokens.size());
  require(first >= 0 && first <= fed(), "first must be 0 to {}, the tokens fed so far, got {}",
          fed(), first);
  require(first + count <= positions(), "the text must have at most {} tokens, got {}", positions(),
          first + count);
  require(first <= reusable(first + count),
          "first must be 0, got {}: rope turns the keys of a text of {} tokens differently from "
          "the cached ones, which belong to a text of {} tokens",
          first, first + count, length_);
  for (size_t i = 0; i < tokens.size(); ++i) {
    require(tokens[i] >= 0 && tokens[i] < vocabulary(), "token {} must be 0 to {}, got {}",
            first + static_cast<int64_t>(i), vocabulary() - 1, tokens[i]);
  }
}

void Generation::put(std::span<const int32_t> tokens, int64_t first, int64_t length) {
  std::vector<int32_t> values;
  for (const Feed& feed : feeds_) {
    if (feed.content == Content::tokens) {
      values.assign(tokens.begin(), tokens.end());
    } else if (feed.content == Content::length) {
      values.assign(1, static_cast<int32_t>(length));
    } else {
      // The rows of a learned table of positions may start at an offset.
      int64_t start = first + (feed.content == Content::table_rows ? plan_.position_offset : 0);
      values.resize(tokens.size());
      std::iota(values.begin(), values.end(), static_cast<int32_t>(start));
    }
    runtime_.memory().write(runtime_.buffer(feed.buffer), 0, values.data(),
                            static_cast<int64_t>(values.size() * sizeof(int32_t)));
  }
}

std::vector<float> Generation::feed(std::span<const int32_t> tokens, int64_t first) {
  fed_ = first;
  version_ = store_.version();
  length_ = first + static_cast<int64_t>(tokens.size());
  while (!tokens.empty()) {
    // The program processes at most `bound` tokens in a run.
    size_t n = std::min(tokens.size(), static_cast<size_t>(plan_.graph.bound));
    executor_.set_extent(MicroId(0), static_cast<int64_t>(n));
    put(tokens.first(n), fed_, length_);
    executor_.run();
    fed_ += static_cast<int64_t>(n);
    tokens = tokens.subspan(n);
  }
  return logits();
}

std::vector<float> Generation::logits() const {
  std::vector<float> out(static_cast<size_t>(vocabulary()));
  runtime_.memory().read_floats(runtime_.buffer(plan_.logits), 0, vocabulary(), out.data());
  return out;
}

std::vector<float> Generation::decode(std::span<const int32_t> tokens, int64_t first) {
  store_.owner().require_idle("decode");
  store_.require_refreshed();
  check(tokens, first);
  control_.begin_evaluation();
  std::vector<float> logits;
  runtime_.guarded([&] { logits = feed(tokens, first); });
  return logits;
}

}  // namespace ds
