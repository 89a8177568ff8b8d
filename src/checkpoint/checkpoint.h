#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/ids.h"
#include "core/base/json.h"
#include "core/config/loss_scaler.h"
#include "core/graph/graph.h"

namespace ds {

// A tensor that the caller adds to a checkpoint, in row-major order without gaps.
struct Attachment {
  DType dtype = DS_DTYPE_NONE;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};
// The largest number of attachments of a rank: their header fits into what readers accept.
inline constexpr size_t kMostAttachments = 4096;
// The attachments of one rank, by name.
using Attachments = std::map<std::string, Attachment>;

// The data of a checkpoint other than its tensors.
struct CheckpointInfo {
  // Number of steps that the run has completed.
  int64_t step = 0;
  // Number of these steps that were skipped because of NaN or infinity.
  int64_t skipped = 0;
  int64_t updates_taken() const { return step - skipped; }
  uint64_t seed = 0;
  // State of the loss scaler; empty if the run has no loss scaler.
  std::optional<LossScaler> scaler;
  // Hyperparameters that were set by calls and replace the values of the configuration and the
  // schedule. Each parameter group has its values by name, such as "lr".
  std::vector<std::map<std::string, double>> set_numbers;
  std::string numerics_key;
  // Parameters that were frozen when the checkpoint was saved.
  std::vector<std::string> frozen;
  // Frozen parameters that have optimizer states because they were trained earlier.
  std::vector<std::string> frozen_with_states;
  // Parameters with fewer updates than the run has taken, each with its number of updates, which
  // its bias correction uses.
  std::vector<std::pair<std::string, int64_t>> updates;
  // The model that an adapter was trained on, as {"folder": PATH, "hash": HASH}, if the checkpoint
  // leaves its frozen parameters out; otherwise null.
  Json base;
  // For a save: 1 for each parameter that the checkpoint leaves out, because the base has it. Empty
  // if it leaves none out.
  IdVector<ParamId, char> left_out;
  bool stores(ParamId param) const { return left_out.empty() || !left_out[param]; }
  // The effective configuration of the run that saved the checkpoint.
  Json config;
  // The caller's state, such as the position of a sampler, and metrics.
  Json client;
  // The attachments of this rank in a save, or null. A load leaves the member null, since
  // attachments are read one by one (attachments.h).
  std::shared_ptr<const Attachments> attached;
  // Tag of a save, which becomes part of the folder's name; "" means no tag.
  std::string tag;
  // The path that the checkpoint was read from, and the hash of its manifest. They are not stored.
  std::string path, hash;
};

// Which committed checkpoints stay in the folder after a save.
struct Keep {
  // The number of newest checkpoints that stay, including the checkpoint just saved, or 0 to keep
  // all. The newest complete checkpoint of each tag stays as well.
  int64_t newest = 0;
  // Path or name of one more checkpoint to keep, or "".
  std::string also;
};

}  // namespace ds
