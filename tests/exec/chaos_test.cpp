#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

#include "core/base/error.h"
#include "exec/executor.h"
#include "passes/schedule.h"
#include "support/ranks.h"
#include "support/tags.h"
#include "support/temp_folder.h"

// The chaos device on random programs, against a computation that has neither queues nor shared memory: with
// every wait in place nothing may tell them apart; without one, something should.
namespace ds::test {
namespace {

constexpr uint64_t kPrograms = 30, kSeeds = 8;
constexpr int kLength = 70, kRuns = 3;

int world_of(uint64_t seed) { return seed % 3 == 0 ? 2 : 1; }

// The program of every rank, with offsets and waits.
std::vector<Program> placed(uint64_t seed) {
  std::vector<Program> ranks;
  for (int r = 0; r < world_of(seed); ++r) {
    ranks.push_back(random_program(seed, r, world_of(seed), kLength));
    assign_offsets(ranks.back(), {});
    insert_waits(ranks.back());
  }
  return ranks;
}

// What outlives a program on one rank.
struct Devices {
  explicit Devices(const std::string& folder) : file(File::scratch(folder, false)) {}
  ThreadTeam team{1};
  File file;
  IoLane read{"read", 4096, 4, nullptr}, write{"write", 4096, 4, nullptr};
  KernelRegistry kernels = tag_kernels();
  FileTail tail;
  StepScalars scalars;
};

// Memory of one rank, filled with the first contents.
class RankMemory {
 public:
  RankMemory(const Program& program, File& file) : program_(program), file_(file) {
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
    size_t padded = static_cast<size_t>(bytes / 4096 + 1) * 4096;
    std::unique_ptr<void, decltype(&std::free)> block(std::aligned_alloc(4096, padded), &std::free);
    std::memset(block.get(), 0, padded);
    memory_.arena[tier][residency] = static_cast<std::byte*>(block.get());
    blocks_.push_back(std::move(block));
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
    std::memcpy(in ? place : bytes.data(), in ? bytes.data() : place, bytes.size());
  }

  const Program& program_;
  File& file_;
  Memory memory_;
  std::vector<std::unique_ptr<void, decltype(&std::free)>> blocks_;
};

using Contents = std::vector<std::vector<Bytes>>;  // by rank and buffer

// The persistent buffers after kRuns runs; chaos: a seed, or in order.
std::vector<Bytes> run_rank(const Program& program, Communicator& comm, Devices& devices,
                            std::optional<uint64_t> chaos) {
  RankMemory memory(program, devices.file);
  ExecContext context;
  CommGroups groups(comm);
  context.kernels = &devices.kernels;
  context.comm = &groups;
  context.team = &devices.team;
  context.memory = memory.memory();
  context.read_lane = &devices.read;
  context.write_lane = &devices.write;
  context.tail = &devices.tail;
  context.scalars = &devices.scalars;
  auto executor = chaos ? make_chaos_executor(program, context, *chaos) : make_executor(program, context);
  for (int run = 0; run < kRuns; ++run) executor->run();
  executor.reset();
  return memory.contents();
}

// Seeds under which the ranks' persistent buffers differ from `expected`; stops at the first when `quick`.
int differing(const std::vector<Program>& ranks, const Contents& expected, Devices* devices, bool quick) {
  std::vector<int> differ(ranks.size() * kSeeds, 0);
  run_ranks(static_cast<int>(ranks.size()), [&](Communicator& comm) {
    size_t r = static_cast<size_t>(comm.rank());
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      bool same = run_rank(ranks[r], comm, devices[r], seed + 1) == expected[r];
      float mine = same ? 0 : 1, any = 0;
      comm.all_reduce(&mine, &any, 1, DS_DTYPE_F32, "compare");
      differ[r * kSeeds + seed] = any > 0;
      if (quick && any > 0) break;
    }
  });
  return static_cast<int>(std::count(differ.begin(), differ.begin() + kSeeds, 1));
}

TEST(Chaos, RandomProgramsKeepTheirBytes) {
  TempFolder folder;
  Devices devices[2]{Devices(folder.path()), Devices(folder.path())};
  int used[kQueues] = {}, waits = 0;
  for (uint64_t seed = 0; seed < kPrograms; ++seed) {
    std::vector<Program> ranks = placed(seed);
    for (const Instr& in : ranks[0].instrs) {
      ++used[static_cast<int>(in.queue)];
      waits += static_cast<int>(in.waits.size());
    }
    Contents expected = interpret(ranks, kRuns), in_order(ranks.size());
    run_ranks(world_of(seed), [&](Communicator& comm) {
      size_t r = static_cast<size_t>(comm.rank());
      verify(ranks[r], {});
      in_order[r] = run_rank(ranks[r], comm, devices[r], {});
    });
    EXPECT_TRUE(in_order == expected) << "seed " << seed << "\n" << ranks[0].print();
    EXPECT_EQ(differing(ranks, expected, devices, false), 0) << "seed " << seed;
  }
  for (int q = 0; q < kQueues; ++q) EXPECT_GT(used[q], 60) << queue_name(static_cast<Queue>(q));
  EXPECT_GT(waits, 1000);
}

// insert_waits leaves no wait that another covers, so the verifier refuses each time. Chaos sees it only
// where the bytes live on: of all 1354 waits it catches 96 % within 8 seeds.
TEST(Chaos, ADroppedWaitShows) {
  TempFolder folder;
  Devices devices[2]{Devices(folder.path()), Devices(folder.path())};
  int dropped = 0, refused = 0, tried = 0, caught = 0;
  for (uint64_t seed = 0; seed < kPrograms; ++seed) {
    std::vector<Program> ranks = placed(seed);
    Contents expected = interpret(ranks, kRuns);
    for (size_t i = 0; i < ranks[0].instrs.size(); ++i) {
      for (size_t w = 0; w < ranks[0].instrs[i].waits.size(); ++w) {
        std::vector<Program> broken = ranks;
        for (Program& p : broken) {
          auto& waits = p.instrs[i].waits;
          waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(w));
        }
        try {
          verify(broken[0], {});
        } catch (const Error&) {
          ++refused;
        }
        if (dropped++ % 4 != 0) continue;
        ++tried;
        caught += differing(broken, expected, devices, true) > 0;
      }
    }
  }
  EXPECT_EQ(refused, dropped);
  EXPECT_GT(tried, 300);
  EXPECT_GT(caught * 100, tried * 92) << caught << " of " << tried;
}

}  // namespace
}  // namespace ds::test
