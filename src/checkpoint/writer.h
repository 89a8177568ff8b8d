#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/state_access.h"

namespace ds {

// Saves a canonical checkpoint on a file system that all ranks share. Creates
// folder/step-NNNNNNNN-C/ with one safetensors file for each kind of state (tensors by parameter
// name, unpadded, f32). All ranks write to each file at disjoint offsets and sync it; then rank 0
// commits manifest.json, with the hashes of all pieces, by an atomic rename. C is one above the
// largest in `folder`, so saving a step again does not touch its older checkpoint. After the commit
// older checkpoints that `keep` does not name are removed. Returns the path of the checkpoint.
// Collective: if one rank fails, every rank throws its error, nothing is committed, and the older
// checkpoints stay.
std::string save_checkpoint(StateAccess& state, const std::string& folder,
                            const CheckpointInfo& info, const Keep& keep = {});

// A save that runs in the background. The constructor is collective: it creates the files and
// copies the states that this rank writes to host memory. A thread of each rank then writes the
// copy, and rank 0's thread commits once the threads of all ranks have finished. The threads
// coordinate through files in the checkpoint's folder and never use the communicator.
class StartedSave {
 public:
  // `patience_ms` is the time that rank 0 waits for the other ranks after it has written its own
  // part.
  StartedSave(StateAccess& state, const std::string& folder, const CheckpointInfo& info,
              const Keep& keep, int64_t patience_ms);
  // Waits until the save has ended; logs its error, if any.
  ~StartedSave();
  // Stops waiting for other ranks at once, because one of them has ended. A save that still needs
  // the part of another rank then fails.
  void give_up();
  StartedSave(const StartedSave&) = delete;
  StartedSave& operator=(const StartedSave&) = delete;
  // Waits until all ranks' saves have ended. Returns the path, or throws the error of the lowest
  // failed rank on all ranks. Collective; call it once.
  std::string wait();

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

}  // namespace ds
