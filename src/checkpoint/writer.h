#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/state_access.h"

namespace ds {

// Canonical checkpoint, collective over all ranks, on a file system that all ranks share. Makes
// folder/step-NNNNNNNN-C/ with one safetensors file per state kind (tensors by parameter name,
// unpadded, f32), each written by all ranks at disjoint offsets, then synced; then rank 0 commits
// manifest.json (all ranks' piece hashes) by an atomic rename. C counts the commits into folder, so
// saving a step again never touches the older checkpoint of it. After the commit the older ones
// that `keep` does not name are removed. Returns the path. If one rank fails, every rank throws its
// error and nothing is committed; the older checkpoints stay.
std::string save_checkpoint(StateAccess& state, const std::string& folder,
                            const CheckpointInfo& info, const Keep& keep = {});

// The same while its caller goes on. The constructor is collective: it makes the files and copies
// what this rank writes to memory of the host, then a thread writes, and rank 0's thread commits
// when those of all ranks have finished. Threads meet by files below the checkpoint's folder and
// never communicate.
class StartedSave {
 public:
  // patience_ms: how long rank 0 waits, when it has finished, for a rank that has not.
  StartedSave(StateAccess& state, const std::string& folder, const CheckpointInfo& info,
              const Keep& keep, int64_t patience_ms);
  ~StartedSave();  // waits; an error is logged
  // Ends the wait for other ranks, of which one has ended, at once: what is not committed by then
  // is an error.
  void give_up();
  StartedSave(const StartedSave&) = delete;
  StartedSave& operator=(const StartedSave&) = delete;
  // Collective, once: returns the path, or throws on every rank what the lowest rank that failed
  // has thrown.
  std::string wait();

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

}  // namespace ds
