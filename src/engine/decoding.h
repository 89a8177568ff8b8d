#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "compile/decode_plan.h"
#include "compile/pipeline.h"
#include "engine/runtime.h"
#include "engine/state_store.h"
#include "engine/step_control.h"
#include "exec/executor.h"

namespace ds {

// A plan's decode program in memory: continues one text. Everything is borrowed and outlives it.
// Makes an executor, as Runtime::make_executors says. A change of the parameters, and a run of any
// other program, in whose memory the caches lie, end the text: its first tokens are to be fed
// again.
class Decoding {
 public:
  Decoding(const DecodePlan& plan, Runtime& runtime, StepControl& control, StateStore& store);

  int64_t positions() const { return plan_.positions; }  // tokens of the longest text
  int64_t vocabulary() const;
  // The first tokens of the text fed so far that a text of `length` tokens can build on: all of
  // them, or none when its keys are turned in another way (same_rotations()).
  int64_t reusable(int64_t length) const;
  // Collective: tokens as places [first, first + count) of the text, in chunks; what stood from
  // `first` on is forgotten. Returns the logits behind the last one. Throws
  // DS_ERROR_INVALID_ARGUMENT, naming both values: no token, a token outside of the vocabulary,
  // more positions than there are, or `first` behind the tokens that are reusable.
  std::vector<float> decode(std::span<const int32_t> tokens, int64_t first);

 private:
  // What an input holds that is filled before a run; caches are the program's own.
  enum class Content { tokens, places, table_rows, length };
  struct Feed {
    Content content;
    BufferId buffer;
  };

  int64_t fed() const { return version_ == store_.version() && executor_->ran_last() ? fed_ : 0; }
  void check(std::span<const int32_t> tokens, int64_t first) const;
  std::vector<float> feed(std::span<const int32_t> tokens, int64_t first);
  void put(std::span<const int32_t> tokens, int64_t first, int64_t length);
  std::vector<float> logits() const;

  const DecodePlan& plan_;
  Runtime& runtime_;
  StepControl& control_;
  StateStore& store_;
  std::unique_ptr<Executor> executor_;
  std::vector<Feed> feeds_;
  std::vector<Attrs> ropes_;  // whose rotations depend on the text's length
  int64_t fed_ = 0;           // places of the text whose keys and values the caches have
  int64_t version_ = 0;       // of the parameters that they were computed with
  int64_t length_ = 0;        // of the text when its keys were turned
};

}  // namespace ds
