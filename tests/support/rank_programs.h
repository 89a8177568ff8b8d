#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/device/device.h"
#include "exec/executor.h"
#include "support/tags.h"

namespace ds::test {

// Runs random programs of tags (tags.h) on any device.

constexpr int kProgramRuns = 3, kProgramLength = 70;

// Returns the number of ranks of the program drawn from `seed`.
inline int world_of(uint64_t seed) { return seed % 3 == 0 ? 2 : 1; }

// Returns the programs of all ranks, with buffer offsets and waits.
std::vector<Program> placed_programs(uint64_t seed);

// The objects of a rank that outlive a program.
struct RankRoom {
  explicit RankRoom(const std::string& folder);
  File file;
  IoLane read{"read", 4096, 4, nullptr}, write{"write", 4096, 4, nullptr};
  KernelRegistry kernels = tag_kernels();
  FileTail tail;
  StepScalars scalars;
};

// The device and the order in which a program runs.
struct RunOn {
  // If set, the seed of the chaos device, which runs the program.
  std::optional<uint64_t> chaos;
  // The device to use; null means the host.
  Device* device = nullptr;
  bool comm_thread = false;
};

// Returns the contents of a rank's persistent buffers, by buffer, after kProgramRuns runs.
std::vector<Bytes> run_program(const Program& program, Communicator& comm, RankRoom& room,
                               const RunOn& on);

}  // namespace ds::test
