#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/device/device.h"
#include "exec/executor.h"
#include "support/tags.h"

namespace ds::test {

// Random programs of tags on every device.

constexpr int kProgramRuns = 3, kProgramLength = 70;

inline int world_of(uint64_t seed) { return seed % 3 == 0 ? 2 : 1; }

// The program of every rank, with offsets and waits.
std::vector<Program> placed_programs(uint64_t seed);

// What outlives a program on one rank.
struct RankRoom {
  explicit RankRoom(const std::string& folder);
  File file;
  IoLane read{"read", 4096, 4, nullptr}, write{"write", 4096, 4, nullptr};
  KernelRegistry kernels = tag_kernels();
  FileTail tail;
  StepScalars scalars;
};

// What a program runs on: the executor's choice of order, and the device.
struct RunOn {
  std::optional<uint64_t> chaos;  // on the chaos device
  Device* device = nullptr;       // null: the host
  bool comm_thread = false;
};

// The persistent buffers of a rank after kProgramRuns runs, by buffer.
std::vector<Bytes> run_program(const Program& program, Communicator& comm, RankRoom& room,
                               const RunOn& on);

}  // namespace ds::test
