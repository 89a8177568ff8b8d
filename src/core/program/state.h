#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/program/program.h"

namespace ds {

// One kind of state that training keeps in addition to parameters. The code for placement, memory
// figures, initial values, checkpoints and resets loops over these rows. Only the code that emits
// instructions on a state knows its name.
struct StateRow {
  // The elements that one rank keeps, either of a bucket or of all parameters taken as one tensor
  // (Optimizer::joint).
  enum class Extent : int8_t {
    // The elements that the rank updates.
    part,
    // All elements of the bucket, on the device.
    whole,
    // An even share of the bucket for each rank of its class, regardless of what ZeRO partitions.
    share,
    // One buffer for each level of ranks, for the part of the bucket that the reduction over this
    // level reads.
    levels,
    // Every tensor, padded to one chunk per rank (core/program/signs.h). Empty on one rank.
    signs,
    // One chunk of every tensor: the chunks that this rank combines and sends back. Empty on one
    // rank.
    answered_signs,
    // The elements that pad one tensor to whole chunks. Empty on one rank.
    filling,
    // Three numbers per parameter.
    params
  };
  // How checkpoints store the state.
  enum class Saved : int8_t {
    // As one tensor per parameter in f32, which any number of ranks can load. In memory, the state
    // has the type OptimizerConfig::states, and 8-bit codes have scales.
    canonical,
    // Both as in `canonical` and as in `own`.
    both,
    // As one f32 tensor of each rank. A run on another number of ranks starts with zeros.
    own,
    // As a single copy in f32, because the state is equal on all ranks.
    common,
    no
  };
  // When the state is reset to its initial value.
  enum class Forgotten : int8_t {
    never,
    // When the number of ranks changes. The state of a parameter is also reset when it is frozen.
    resized,
    // When the number of ranks, the set of trained parameters or their groups change.
    rearranged
  };
  // The name of the state's buffers and, unless saved_as is set, of the state in checkpoints.
  std::string name;
  Extent extent = Extent::part;
  Saved saved = Saved::canonical;
  Forgotten forgotten = Forgotten::never;
  Holds holds = Holds::state;
  // Whether parameters that are updated matrix by matrix also have this state.
  bool of_matrices = true;
  std::string saved_as = "";

  bool canonical() const { return saved == Saved::canonical || saved == Saved::both; }
  bool differs() const { return saved == Saved::own || saved == Saved::both; }
  const std::string& saved_name() const { return saved_as.empty() ? name : saved_as; }
};

// The rows of parameters, which programs compute with, and of masters, which updates change. Their
// placement follows the ZeRO policies of parameters and of states.
inline StateRow param_row() {
  return {"param", StateRow::Extent::part, StateRow::Saved::no, StateRow::Forgotten::never,
          Holds::param};
}
inline StateRow master_row() {
  return {"master", StateRow::Extent::part, StateRow::Saved::canonical, StateRow::Forgotten::never,
          Holds::master};
}

// Returns the row of an error: the part of a rank's messages or answers that compression has lost,
// which is added to the rank's next message or answer.
inline StateRow error_row(std::string_view name, StateRow::Extent extent) {
  return {std::string(name), extent, StateRow::Saved::own, StateRow::Forgotten::rearranged,
          Holds::error};
}

// Names of states that the instructions of compressed exchanges use.
inline constexpr std::string_view kWorkerError = "worker_error", kServerError = "server_error",
                                  kSentError = "sent_error", kAnswerError = "answer_error",
                                  kGradientError = "error", kOwnSteps = "own_steps",
                                  kFilling = "padding", kCoefficients = "coefficients";

}  // namespace ds
