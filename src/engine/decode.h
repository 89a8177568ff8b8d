#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "compile/pipeline.h"
#include "exec/executor.h"

namespace ds {

// A plan's decode program in memory: continues one text. The plan is borrowed and outlives it, as it does its
// executor; address gives where a persistent buffer is.
class Decoding {
 public:
  Decoding(const DecodePlan& plan, std::unique_ptr<Executor> executor,
           std::function<std::byte*(BufferId)> address);

  int64_t positions() const { return plan_.positions; }
  int64_t vocabulary() const;
  // The first tokens of the text fed so far that a text of `length` tokens can build on: all of them, or none
  // when its keys are turned in another way (same_rotations()).
  int64_t reusable(int64_t length) const;
  // Throws DS_ERROR_INVALID_ARGUMENT, naming both values: no token, a token outside of the vocabulary, more
  // positions than there are, or `first` behind the tokens that are reusable.
  void check(std::span<const int32_t> tokens, int64_t first) const;
  // Feeds checked tokens as places [first, first + count) of the text, in chunks; what stood from `first` on
  // is forgotten. Returns the logits behind the last one.
  std::vector<float> feed(std::span<const int32_t> tokens, int64_t first);
  void forget() { fed_ = 0; }  // parameters change: caches are of no use

 private:
  // What an input holds that is filled before a run; caches are the program's own.
  enum class Content { tokens, places, table_rows, length };
  struct Feed {
    Content content;
    BufferId buffer;
  };

  void put(std::span<const int32_t> tokens, int64_t first, int64_t length);
  std::vector<float> logits() const;

  const DecodePlan& plan_;
  std::unique_ptr<Executor> executor_;
  std::function<std::byte*(BufferId)> address_;
  std::vector<Feed> feeds_;
  std::vector<Attrs> ropes_;  // whose rotations depend on the text's length
  int64_t fed_ = 0;           // places of the text whose keys and values the caches have
  int64_t length_ = 0;        // of the text when its keys were turned
};

}  // namespace ds
