#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/graph/graph.h"

namespace ds::test {

// An event between two steps of a run.
struct RunEvent {
  enum class Kind { freeze, thaw, write, evaluate } kind = Kind::evaluate;
  // The parameters that are frozen, thawed or written.
  std::vector<int32_t> params;
  // For a write: whether the written parameter is frozen.
  bool frozen = false;
};

// A run drawn from a seed: everything that its results depend on, and a layout that must not affect
// them.
struct RandomRun {
  uint64_t seed = 0;

  // --- numerics ---

  Graph graph;
  // Holds settings of the layout as well.
  Config config;
  int64_t leaves = 1;
  int steps = 3;
  // Rows of each leaf, by step.
  std::vector<int64_t> rows;
  // Events before each step.
  std::vector<std::vector<RunEvent>> events;
  // For each step, a bit for each rank without data.
  std::vector<uint32_t> absent;

  // --- layout ---

  int world = 1;
  int threads = 1;
  // Calls forward, backward and step instead of train_batch.
  bool pieces = false;
  std::optional<uint64_t> chaos;
  // The collectives are callbacks of a host application (caller.h).
  bool by_callbacks = false;
  // See PlanPrograms.
  int64_t written_out = std::numeric_limits<int64_t>::max();

  // Returns whether some rank has no data in some step.
  bool uneven() const;
  std::string text() const;
};

// A change to another run with the same numerics, which continues in this process from a
// checkpoint.
struct TakeOver {
  // The first step of the new run.
  int step = 0;
  // Saves the checkpoint after the events of that step instead of before them.
  bool behind = false;
  bool async = false;
};
std::vector<TakeOver> draw_take_overs(const RandomRun& run);

// Draws the numerics and the simplest layout: stage 0, with everything on the device. The optimizer
// is one that reduces gradients.
RandomRun draw_plain_run(uint64_t seed);
// Draws a run with compressed gradients, or with an optimizer whose ranks exchange signs from about
// the second update on.
RandomRun draw_compressed_run(uint64_t seed);

// Draws a new layout, with another number of ranks if the numerics allow it.
RandomRun with_layout(RandomRun run, uint32_t stream);
// Draws a new layout at stage 0 or 1 with the same number of ranks.
RandomRun with_compressed_layout(const RandomRun& run, uint32_t stream);

}  // namespace ds::test
