#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/graph/graph.h"

namespace ds::test {

// What happens to a run between two steps.
struct RunEvent {
  enum class Kind { freeze, thaw, write, evaluate } kind = Kind::evaluate;
  std::vector<int32_t> params;  // that are frozen, thawed or written
  bool frozen = false;          // of a write: what is written is not trained
};

// A run drawn from a seed: what its numbers depend on, and beside it the layout that they must not
// depend on.
struct RandomRun {
  uint64_t seed = 0;
  // Numerics.
  Graph graph;
  Config config;  // the layout, too
  int64_t leaves = 1;
  int steps = 3;
  std::vector<int64_t> rows;                  // by step
  std::vector<std::vector<RunEvent>> events;  // by step, before it
  std::vector<uint32_t> absent;               // by step: a bit for each rank without data
  // Layout.
  int world = 1;
  int threads = 1;
  bool pieces = false;  // forward, backward, step instead of train_batch
  std::optional<uint64_t> chaos;
  bool by_callbacks = false;  // ranks meet by the collectives of a program (caller.h)
  int64_t written_out = std::numeric_limits<int64_t>::max();  // PlanPrograms

  bool uneven() const;  // a rank has no data in some step
  std::string text() const;
};

// Another run of the same numerics in the same process takes over by way of a checkpoint.
struct TakeOver {
  int step = 0;         // of which it is the first to be made
  bool behind = false;  // saved behind the events of that step, not before them
  bool async = false;
};
std::vector<TakeOver> draw_take_overs(const RandomRun& run);

// Numerics, and the plainest way to run them: stage 0, everything on the device. The optimizer is
// one whose gradients are reduced.
RandomRun draw_plain_run(uint64_t seed);
// The same with an optimizer whose ranks exchange signs from the second update on or soon behind
// it, or with compressed gradients.
RandomRun draw_compressed_run(uint64_t seed);

// Any layout; another number of ranks where the numerics allow one.
RandomRun with_layout(RandomRun run, uint32_t stream);
// Of stages 0 and 1, and of as many ranks.
RandomRun with_compressed_layout(const RandomRun& run, uint32_t stream);

}  // namespace ds::test
