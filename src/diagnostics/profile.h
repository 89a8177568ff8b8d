#pragma once
#include <cstdint>
#include <string>

#include "comm/communicator.h"
#include "core/base/json.h"
#include "diagnostics/profile_table.h"

namespace ds {

struct ProfileRequest {
  // Sequences of a micro-batch, and tokens of a sequence. 0: the values of the configuration;
  // without a configuration, 4 and at most 128.
  int64_t micro_batch = 0, sequence = 0;
  // The compute type. NONE: the type of the configuration; without a configuration, bf16.
  DType dtype = DS_DTYPE_NONE;
  // Compute threads of a rank; 0: as the configuration says, by default cores / ranks.
  int threads = 0;
  // Number of measured steps. One more step precedes them.
  int steps = 3;
  // Whether the table has a row for each instruction instead of each op.
  bool by_instruction = false;
};

// Parses {"micro_batch", "sequence", "dtype": "f32"|"bf16"|"f16", "threads", "steps", "by":
// "op"|"instruction"}. Throws DS_ERROR_CONFIG for unknown keys and invalid values.
ProfileRequest profile_request(const Json& document);

struct ProfileReport {
  // A line about the profiled steps: model, ranks, types and stage.
  std::string title;
  // Number of tokens of a step, over all ranks.
  int64_t tokens = 0;
  // The table of this rank.
  ProfileTable table;
  std::string text() const;
  Json json() const;
};

// Trains a few steps on random tokens with tracing, and returns how the time is spent. `config` is
// a training configuration; null means the defaults. `model` is the folder of a Hugging Face model,
// from which only config.json is read (the weights are random); "" means the model of the
// configuration. Collective: all ranks must pass equal arguments. Unless the device is a GPU, the
// peak rates are measured before and after the steps, on all ranks at the same time, because ranks
// of one machine share its resources.
ProfileReport profile(const Json& config, const std::string& model, const ProfileRequest& request,
                      Communicator& comm);

}  // namespace ds
