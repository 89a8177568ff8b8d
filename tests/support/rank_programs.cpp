#include "support/rank_programs.h"

#include "core/device/host_device.h"
#include "passes/offsets.h"
#include "passes/sync.h"

namespace ds::test {
namespace {

// The memory of one rank, filled with the initial contents.
class RankMemory {
 public:
  RankMemory(const Program& program, Device& device, File& file)
      : program_(program), device_(device), file_(file) {
    for (int tier = 0; tier < 2; ++tier) {
      allocate(tier, 0, program.arenas[tier].persistent);
      allocate(tier, 1, program.arenas[tier].transient);
    }
    file_.resize(program.arenas[2].persistent + program.arenas[2].transient + 4096);
    memory_.file = &file_;
    std::vector<Bytes> first = first_contents(program);
    for (size_t b = 0; b < first.size(); ++b) move(b, first[b], true);
  }
  const Memory& memory() const { return memory_; }

  std::vector<Bytes> contents() {
    std::vector<Bytes> out = first_contents(program_);
    for (size_t b = 0; b < out.size(); ++b) move(b, out[b], false);
    return out;
  }

 private:
  void allocate(int tier, int residency, int64_t bytes) {
    auto place = tier == 0 ? Device::Place::device : Device::Place::host;
    arenas_.push_back(device_.make_arena(place, (bytes / 4096 + 1) * 4096));
    memory_.arena[tier][residency] = arenas_.back()->address();
  }

  void move(size_t b, Bytes& bytes, bool in) {
    const Buffer& buffer = program_.buffers[b];
    if (bytes.empty()) return;
    if (buffer.tier == Tier::nvme) {
      if (in) file_.write(bytes.data(), bytes.size(), buffer.offset);
      if (!in) file_.read(bytes.data(), bytes.size(), buffer.offset);
      return;
    }
    std::byte* place = memory_.arena[static_cast<int>(buffer.tier)][0] + buffer.offset;
    auto size = static_cast<int64_t>(bytes.size());
    in ? device_.copy(place, bytes.data(), size) : device_.copy(bytes.data(), place, size);
  }

  const Program& program_;
  Device& device_;
  File& file_;
  Memory memory_;
  std::vector<std::shared_ptr<Arena>> arenas_;
};

}  // namespace

RankRoom::RankRoom(const std::string& folder) : file(File::scratch(folder, false)) {}

std::vector<Program> placed_programs(uint64_t seed) {
  std::vector<Program> ranks;
  for (int r = 0; r < world_of(seed); ++r) {
    ranks.push_back(random_program(seed, r, world_of(seed), kProgramLength));
    assign_offsets(ranks.back(), {});
    insert_waits(ranks.back());
  }
  return ranks;
}

namespace {

// Transfers wait for queues and use their memory, so they must end first, even after an error.
struct TransfersEndFirst {
  RankRoom& room;
  ~TransfersEndFirst() {
    room.read.finish();
    room.write.finish();
  }
};

}  // namespace

std::vector<Bytes> run_program(const Program& program, Communicator& comm, RankRoom& room,
                               const RunOn& on) {
  HostDevice host;
  Device& device = on.device ? *on.device : host;
  ThreadTeam team(1);
  RankMemory memory(program, device, room.file);
  CommGroups groups(comm);
  RankQueues queues(device, team, on.comm_thread ? CollectivesOn::thread : CollectivesOn::usual);
  TransfersEndFirst ends{room};
  ExecContext context;
  context.kernels = &room.kernels;
  context.comm = &groups;
  context.queues = &queues;
  context.memory = memory.memory();
  context.read_lane = &room.read;
  context.write_lane = &room.write;
  context.tail = &room.tail;
  context.scalars = &room.scalars;
  auto executor =
      on.chaos ? make_chaos_executor(program, context, *on.chaos) : make_executor(program, context);
  for (int run = 0; run < kProgramRuns; ++run) executor->run();
  executor.reset();
  return memory.contents();
}

}  // namespace ds::test
