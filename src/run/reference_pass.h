#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/config/config.h"
#include "engine/engine.h"
#include "run/data.h"
#include "run/inputs.h"
#include "run/reference.h"

namespace ds {

// How a run gets the losses of its reference.
struct ReferenceRequest {
  // The path of the file, and whether it must be complete: it is that of another run, or this run
  // has made steps, after which its model is no longer the reference.
  std::string path;
  bool complete = false;
  const volatile int32_t* stop = nullptr;
  // Called on rank 0 with lines for the log.
  std::function<void(const std::string&)> note;
};

// Returns the losses of the reference, the model that the engine has now, over all pairs of the
// run. Losses that the file does not have yet are computed and added to it. Groups of pairs are
// distributed to the ranks in turn, as in evaluation, so the bits do not depend on the number of
// ranks. Returns nothing if a stop was requested. Collective. Throws as ReferenceFile does.
std::optional<ReferenceLosses> find_reference(Engine& engine, ModelInputs& inputs,
                                              const RunData& data, const ReferenceRequest& request);

}  // namespace ds
