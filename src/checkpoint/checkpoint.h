#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/json.h"
#include "core/config/loss_scaler.h"

namespace ds {

// Scalars of a checkpoint beside the tensors.
struct CheckpointInfo {
  int64_t step = 0;     // steps made
  int64_t skipped = 0;  // those of them that updated nothing: NaN or infinity
  int64_t updates_taken() const { return step - skipped; }
  uint64_t seed = 0;
  // How the loss scale went on; none where there was none.
  std::optional<LossScaler> scaler;
  // What calls had set in place of configuration and schedule, by group of parameters and name:
  // "lr".
  std::vector<std::map<std::string, double>> set_numbers;
  std::string numerics_key;
  std::vector<std::string> frozen;  // parameters that were not trained
  // Those of them that had been at some time, and so have states.
  std::vector<std::string> frozen_with_states;
  // Parameters that have had fewer updates than were taken, and how many: their bias correction
  // counts these.
  std::vector<std::pair<std::string, int64_t>> updates;
  Json config;       // effective configuration of the run that saved it
  Json client;       // the caller's own state (sampler position, metrics)
  std::string tag;   // of a save: it becomes part of the folder's name; "": none
  std::string path;  // where it was read from; not stored
};

// Which committed checkpoints a save leaves in its folder.
struct Keep {
  int64_t newest = 0;  // so many, with the one just made, and the newest of each tag; 0: all
  std::string also;    // path or name of one more, or ""
};

}  // namespace ds
