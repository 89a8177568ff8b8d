#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "compile/plan.h"
#include "engine/runtime.h"
#include "engine/state_store.h"
#include "engine/step_control.h"
#include "exec/executor.h"

namespace ds {

// A text that a plan's decode program continues. The arguments of the constructor are borrowed and
// must outlive this object. The text ends when parameters change or another program runs, because
// the caches share memory with other programs. Its tokens must then be fed again from the first
// one.
class Generation {
 public:
  // `executor` runs the plan's decode program.
  Generation(const DecodePlaces& plan, Executor& executor, Runtime& runtime, StepControl& control,
             StateStore& store);

  // Returns the number of tokens of the longest text.
  int64_t positions() const { return plan_.positions; }
  int64_t vocabulary() const;
  // Returns how many tokens of the text fed so far a text of `length` tokens can reuse: all of
  // them, or none if its keys are rotated differently (same_rotations()).
  int64_t reusable(int64_t length) const;
  // Collective: feeds tokens as positions [first, first + count) of the text, in chunks, which
  // replace all earlier tokens from position `first` on. Returns the logits after the last token.
  // Throws DS_ERROR_INVALID_ARGUMENT, naming both values, if `tokens` is empty, a token is outside
  // the vocabulary, there are more positions than the plan has, or `first` exceeds the number of
  // reusable tokens.
  std::vector<float> decode(std::span<const int32_t> tokens, int64_t first);

 private:
  // The contents of an input that is filled before each run. Caches belong to the program and are
  // not fed.
  enum class Content { tokens, places, table_rows, length };
  struct Feed {
    Content content;
    BufferId buffer;
  };

  int64_t fed() const { return version_ == store_.version() && executor_.ran_last() ? fed_ : 0; }
  void check(std::span<const int32_t> tokens, int64_t first) const;
  std::vector<float> feed(std::span<const int32_t> tokens, int64_t first);
  void put(std::span<const int32_t> tokens, int64_t first, int64_t length);
  std::vector<float> logits() const;

  const DecodePlaces& plan_;
  Executor& executor_;
  Runtime& runtime_;
  StepControl& control_;
  StateStore& store_;
  std::vector<Feed> feeds_;
  // The rotations whose angles depend on the length of the text.
  std::vector<Attrs> ropes_;
  // Number of positions whose keys and values are in the caches.
  int64_t fed_ = 0;
  // StateStore::version() of the parameters that computed these keys and values.
  int64_t version_ = 0;
  // Length of the text when its keys were rotated.
  int64_t length_ = 0;
};

}  // namespace ds
