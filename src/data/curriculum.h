#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/config/key.h"

namespace ds {

// DeepSpeed's legacy section `curriculum_learning`: how many tokens of each sample are used, by
// step.
struct CurriculumKeys {
  bool enabled = false;
  // `type` is "seqlen"; `schedule` is "fixed_linear", "fixed_root" or "fixed_discrete".
  std::string type = "seqlen", schedule;
  // The lengths in tokens at the beginning and at the end.
  int64_t min_difficulty = 0, max_difficulty = 0;
  // fixed_linear and fixed_root: the steps until the end, and the unit to whose multiples lengths
  // are cut.
  int64_t total_step = 0, difficulty_step = 0;
  // fixed_root: the length grows with this root of the step.
  double root_degree = 0;
  // fixed_discrete: the lengths, and the last step of each but the last one.
  std::vector<int64_t> difficulty, max_step;
};

// Appends the keys of curriculum_learning.
void curriculum_keys(KeyList& keys);
// Throws DS_ERROR_CONFIG if keys of the curriculum are missing or contradict each other or
// run.sequence.
void check_curriculum(const Config& config);

// Returns how many tokens of each sample are used in optimizer step `step`, counted from 0.
int64_t curriculum_difficulty(const CurriculumKeys& config, int64_t step);

}  // namespace ds
