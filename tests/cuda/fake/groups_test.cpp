// Tests collectives on the device: their bits, their order, and what happens if a rank fails.
#include <gtest/gtest.h>

#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/base/error.h"
#include "core/device/device.h"
#include "cuda/fake/group_rank.h"
#include "support/errors.h"
#include "support/fake_cuda.h"
#include "support/ranks.h"

namespace ds::test {
namespace {

using Bytes = std::vector<std::byte>;
using Op = Group::Op;
constexpr Op kOps[] = {Op::all_gather, Op::reduce_scatter, Op::all_reduce, Op::all_to_all};

bool sums(Op op) { return op == Op::reduce_scatter || op == Op::all_reduce; }
bool takes_blocks(Op op) { return op == Op::reduce_scatter || op == Op::all_to_all; }
bool gives_blocks(Op op) { return op == Op::all_gather || op == Op::all_to_all; }

// Draws numbers of magnitude about 1 with either sign.
Bytes drawn(DType dtype, int64_t count, int rank) {
  std::mt19937 random(static_cast<unsigned>(rank + 1));
  Bytes out(static_cast<size_t>(count * size_of(dtype)));
  for (int64_t e = 0; e < count; ++e) {
    const auto word = static_cast<uint32_t>(random());
    const float real = static_cast<float>(static_cast<int32_t>(word)) * 0x1p-30f;
    // A number has a sign, one of 8 exponents near the exponent of 1, and a fraction.
    const uint32_t exponent = word % 8 + (dtype == DS_DTYPE_BF16 ? 123 : 11);
    const auto half = static_cast<uint16_t>(
        (word >> 16 & 0x8000u) | (dtype == DS_DTYPE_BF16 ? exponent << 7 | (word >> 8 & 0x7fu)
                                                         : exponent << 10 | (word >> 8 & 0x3ffu)));
    const auto unit = static_cast<size_t>(size_of(dtype));
    std::memcpy(out.data() + static_cast<size_t>(e) * unit,
                dtype == DS_DTYPE_F32 ? static_cast<const void*>(&real) : &half, unit);
  }
  return out;
}

// Runs a collective through a communicator in host memory and returns the result.
Bytes by_host(Communicator& comm, Op op, const Bytes& in, int64_t count, DType dtype,
              size_t out_bytes) {
  Bytes out(out_bytes);
  const auto elements = static_cast<size_t>(count),
             bytes = elements * static_cast<size_t>(size_of(dtype));
  if (op == Op::all_gather) comm.all_gather(in.data(), out.data(), bytes, "host");
  if (op == Op::all_to_all) comm.all_to_all(in.data(), out.data(), bytes, "host");
  if (op == Op::reduce_scatter) comm.reduce_scatter(in.data(), out.data(), elements, dtype, "host");
  if (op == Op::all_reduce) comm.all_reduce(in.data(), out.data(), elements, dtype, "host");
  return out;
}

class FakeCudaGroups : public testing::Test {
 protected:
  void SetUp() override {
    if (!FakeCuda::find()) GTEST_SKIP() << "the plugin is not built";
    FakeCuda::find()->fail("");
  }
  void TearDown() override {
    if (FakeCuda::find()) FakeCuda::find()->jitter(0);
  }
};

constexpr int64_t kCompareRoom = 1 << 20;

// Runs a collective with its result in separate memory and, if allowed, in place of the input, and
// compares both with by_host().
void compare_call(GroupRank& rank, Op op, int64_t count, DType dtype) {
  const int world = rank.comm.size();
  const int64_t unit = sums(op) ? static_cast<int64_t>(sum_size(dtype)) : size_of(dtype);
  const Bytes in = drawn(dtype, count * (takes_blocks(op) ? world : 1), rank.comm.rank());
  Bytes out(static_cast<size_t>(count * unit * (gives_blocks(op) ? world : 1)));
  const Bytes want = by_host(rank.comm, op, in, count, dtype, out.size());
  std::byte* from = rank.arena->address();
  const bool in_place = dtype == DS_DTYPE_F32 && op != Op::all_to_all;
  for (bool apart : {true, false}) {
    if (!apart && !in_place) continue;
    const int64_t own = rank.comm.rank() * count * unit;
    std::byte* to = apart ? from + kCompareRoom : op == Op::reduce_scatter ? from + own : from;
    std::byte* given = !apart && op == Op::all_gather ? from + own : from;
    rank.device->copy(given, in.data(), static_cast<int64_t>(in.size()));
    rank.run(op, given, to, count, dtype, "on the device");
    rank.finish();
    rank.device->copy(out.data(), to, static_cast<int64_t>(out.size()));
    EXPECT_TRUE(out == want) << "operation " << static_cast<int>(op) << " of " << count << " "
                             << dtype_name(dtype) << ", " << world << " ranks, apart " << apart;
  }
}

void compare_with_communicator(Gpus gpus) {
  for (int world : {1, 2, 3, 4}) {
    run_ranks(world, [&](Communicator& comm) {
      GroupRank rank(comm, 2 * kCompareRoom, gpus);
      // All ranks draw the same random numbers.
      std::mt19937 random(static_cast<unsigned>(world));
      for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16, DS_DTYPE_U8}) {
        for (int64_t count :
             {int64_t{0}, int64_t{1}, int64_t{37}, int64_t{200}, int64_t{5000},
              static_cast<int64_t>(random() % 30'000), static_cast<int64_t>(random() % 300)}) {
          for (Op op : kOps) {
            if (dtype != DS_DTYPE_U8 || !sums(op)) compare_call(rank, op, count, dtype);
          }
        }
      }
    });
  }
}

// Compares groups of many ranks. A device adds at most 64 parts at once, so it needs several
// passes.
void compare_many_ranks(Gpus gpus, int world) {
  run_ranks(world, [&](Communicator& comm) {
    GroupRank rank(comm, 2 * kCompareRoom, gpus);
    for (Op op : kOps) {
      for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16}) compare_call(rank, op, 1021, dtype);
    }
  });
}

TEST_F(FakeCudaGroups, HaveTheBitsOfACommunicator) { compare_with_communicator(Gpus::shared); }

TEST_F(FakeCudaGroups, ManyRanksHaveTheBitsOfACommunicator) {
  compare_many_ranks(Gpus::shared, 67);
}

TEST_F(FakeCudaGroups, ManyLinkedGpusHaveTheBitsOfACommunicator) {
  const FakeCuda::Live before = FakeCuda::find()->live();
  FakeCuda::find()->fail_links("");
  setenv("DS_FAKE_CUDA_DEVICES", "70", 1);
  compare_many_ranks(Gpus::own, 70);
  setenv("DS_FAKE_CUDA_DEVICES", std::to_string(FakeCuda::kGpus).c_str(), 1);
  EXPECT_EQ(FakeCuda::find()->link_counts().misuses, 0);
  EXPECT_EQ(FakeCuda::find()->live(), before);
}

// Also compares the transferred bytes with the counters of links and groups.
TEST_F(FakeCudaGroups, LinkedGpusHaveTheBitsOfACommunicator) {
  const FakeCuda& fake = *FakeCuda::find();
  const FakeCuda::Live before = fake.live();
  fake.fail_links("");
  compare_with_communicator(Gpus::own);
  EXPECT_GT(fake.link_counts().bytes, 0);
  EXPECT_EQ(fake.link_counts().misuses, 0);
  EXPECT_EQ(fake.live(), before);
}

// A model of the memory of all ranks, on which a random program is simulated. Each rank has `kRows`
// rows of floats.
class Model {
 public:
  static constexpr int64_t kRows = 5;
  Model(int world, int64_t block)
      : world_(world),
        row_(block * world),
        block_(block),
        data_(static_cast<size_t>(world * kRows * row_)) {}
  float* row(int rank, int64_t number) {
    return data_.data() + (static_cast<int64_t>(rank) * kRows + number) * row_;
  }
  int64_t row_elements() const { return row_; }
  void apply(Op op, int64_t from, int64_t to) {
    Model before = *this;
    const auto bytes = [&](int64_t elements) {
      return static_cast<size_t>(elements) * sizeof(float);
    };
    for (int r = 0; r < world_; ++r) {
      std::vector<const void*> parts;
      for (int peer = 0; peer < world_; ++peer) {
        const float* in = before.row(peer, from);
        if (op == Op::all_gather) std::memcpy(row(r, to) + peer * block_, in, bytes(block_));
        if (op == Op::all_to_all)
          std::memcpy(row(r, to) + peer * block_, in + r * block_, bytes(block_));
        parts.push_back(op == Op::reduce_scatter ? in + r * block_ : in);
      }
      const int64_t count = op == Op::reduce_scatter ? block_ : row_;
      if (sums(op))
        tree_reduce(parts.data(), world_, DS_DTYPE_F32, ReduceOp::sum, row(r, to),
                    static_cast<size_t>(count));
    }
  }

 private:
  int world_;
  int64_t row_, block_;
  std::vector<float> data_;
};

// Runs random sequences of calls. Only the queues wait between calls, and queues are late at
// random. Calls overwrite memory that other ranks have read, and read memory that others write
// next.
void run_random_sequences(Gpus gpus) {
  constexpr int64_t kBlock = 3000;
  FakeCuda::find()->jitter(300);
  for (int world : {2, 3, 4}) {
    run_ranks(world, [&](Communicator& comm) {
      // All ranks draw the same random numbers.
      std::mt19937 random(static_cast<unsigned>(world));
      const auto draw = [&](unsigned end) { return static_cast<int>(random() % end); };
      Model model(world, kBlock);
      const int64_t row = model.row_elements();
      const int64_t room = Model::kRows * row * static_cast<int64_t>(sizeof(float));
      GroupRank rank(comm, room, gpus);
      auto* base = reinterpret_cast<float*>(rank.arena->address());
      for (int call = 0; call < 150; ++call) {
        if (draw(2) == 0) {
          const int64_t number = draw(Model::kRows);
          const int first = draw(1000);
          for (int r = 0; r < world; ++r) {
            float* data = model.row(r, number);
            for (int64_t e = 0; e < row; ++e)
              data[e] = 0.37f * static_cast<float>((first + e * (r + 3)) % 1001);
          }
          rank.queue->copy(base + number * row, model.row(comm.rank(), number),
                           row * static_cast<int64_t>(sizeof(float)));
        }
        const Op op = kOps[draw(4)];
        const int64_t from = draw(Model::kRows);
        const int64_t to =
            op == Op::all_reduce && draw(2) == 0 ? from : (from + 1 + draw(4)) % Model::kRows;
        rank.run(op, base + from * row, base + to * row, op == Op::all_reduce ? row : kBlock,
                 DS_DTYPE_F32, "random");
        model.apply(op, from, to);
      }
      rank.finish();
      std::vector<float> got(static_cast<size_t>(Model::kRows * row));
      rank.device->copy(got.data(), base, room);
      EXPECT_EQ(std::memcmp(got.data(), model.row(comm.rank(), 0), static_cast<size_t>(room)), 0)
          << "rank " << comm.rank() << " of " << world;
    });
  }
}

TEST_F(FakeCudaGroups, RandomSequencesKeepTheirOrder) { run_random_sequences(Gpus::shared); }

TEST_F(FakeCudaGroups, RandomSequencesOfLinkedGpusKeepTheirOrder) {
  FakeCuda::find()->fail_links("");
  run_random_sequences(Gpus::own);
  EXPECT_EQ(FakeCuda::find()->link_counts().misuses, 0);
}

// The last rank leaves before its call k without a message and frees its memory at once.
TEST_F(FakeCudaGroups, ARankThatLeavesEndsTheOthers) {
  const FakeCuda& fake = *FakeCuda::find();
  const FakeCuda::Live before = fake.live();
  constexpr int64_t kCount = 200'000, kBytes = kCount * static_cast<int64_t>(sizeof(float));
  for (int world : {2, 3}) {
    for (int last : {0, 1, 5}) {
      run_ranks(world, [&](Communicator& comm) {
        const bool leaves = comm.rank() == world - 1;
        std::string text;
        {
          GroupRank rank(comm, 2 * kBytes, Gpus::shared);
          auto use = [&] {
            for (int call = 0; call < 8; ++call) {
              if (leaves && call == last) throw Error(DS_ERROR_COMM, "no more");
              rank.run(kOps[call % 4], rank.arena->address(), rank.arena->address() + kBytes,
                       call % 4 == 2 ? kCount : kCount / world, DS_DTYPE_F32,
                       "call " + std::to_string(call));
            }
          };
          text = message_of(use);
          if (leaves) comm.abort("the last rank wants no more");
        }
        const char* operations[] = {"all_gather", "reduce_scatter f32", "all_reduce f32",
                                    "all_to_all"};
        if (!leaves)
          expect_names(text, {"rank " + std::to_string(comm.rank()) + " in " +
                                  operations[last % 4] + " 'call " + std::to_string(last) + "'",
                              "wants no more"});
      });
      EXPECT_EQ(fake.live(), before) << world << " ranks, call " << last;
    }
  }
}

// A queue in which a given copy or sum fails when it is submitted.
class FailingQueue final : public DeviceQueue {
 public:
  FailingQueue(DeviceQueue& queue, int good) : queue_(queue), good_(good) {}
  void copy(void* to, const void* from, int64_t bytes) override {
    count();
    queue_.copy(to, from, bytes);
  }
  void sum(std::span<const void* const> parts, DType dtype, float* out, int64_t elements) override {
    count();
    queue_.sum(parts, dtype, out, elements);
  }
  void fill(void* to, int byte, int64_t bytes) override { queue_.fill(to, byte, bytes); }
  bool runs_host_code() const override { return false; }
  void launch(const Kernel& kernel, const LaunchArgs& args) override {
    queue_.launch(kernel, args);
  }
  void run(std::function<void()> task) override { queue_.run(std::move(task)); }
  std::unique_ptr<Event> make_event() const override { return queue_.make_event(); }
  void record(Event& event) override { queue_.record(event); }
  void wait(const Event& event) override { queue_.wait(event); }
  void finish() const noexcept override { queue_.finish(); }

 private:
  void count() {
    if (good_-- == 0) throw Error(DS_ERROR_INTERNAL, "the driver refuses it");
  }
  DeviceQueue& queue_;
  int good_;
};

// Rank 0 fails in a step when others may already be reading its memory, and tries to free the
// memory at once.
TEST_F(FakeCudaGroups, ARankThatFailsInAStepKeepsItsMemoryForTheOthers) {
  const FakeCuda& fake = *FakeCuda::find();
  const FakeCuda::Live before = fake.live();
  constexpr int64_t kCount = 300'000, kBytes = kCount * static_cast<int64_t>(sizeof(float));
  fake.jitter(3000);
  for (int good = 0; good < 10; ++good) {
    run_ranks(3, [&](Communicator& comm) {
      GroupRank rank(comm, 2 * kBytes, Gpus::shared);
      FailingQueue queue(*rank.queue, comm.rank() == 0 ? good : INT_MAX);
      std::string text;
      try {
        for (int call = 0; call < 8; ++call) {
          rank.run_on(queue, kOps[call % 4], rank.arena->address(), rank.arena->address() + kBytes,
                      call % 4 == 2 ? kCount : kCount / 3, DS_DTYPE_F32, "call");
        }
      } catch (const Error& error) {
        text = error.what();
      }
      expect_names(text, {"the driver refuses it"});
      if (comm.rank() != 0) expect_names(text, {"ended by rank 0: rank 0 in "});
    });
    EXPECT_EQ(fake.live(), before) << good;
  }
}

// The driver fails in the middle of a collective: no rank may hang or free memory that another
// rank's queue still reads.
TEST_F(FakeCudaGroups, AnErrorAtAnyCallEndsAllRanks) {
  const FakeCuda& fake = *FakeCuda::find();
  const FakeCuda::Live before = fake.live();
  constexpr int64_t kCount = 100'000, kBytes = kCount * static_cast<int64_t>(sizeof(float));
  // Number of driver calls before any rank frees its resources.
  int64_t submitted = 0;
  auto use = [&] {
    run_ranks(3, [&](Communicator& comm) {
      GroupRank rank(comm, 2 * kBytes, Gpus::shared);
      for (int call = 0; call < 8; ++call) {
        rank.run(kOps[call % 4], rank.arena->address(), rank.arena->address() + kBytes,
                 call % 4 == 2 ? kCount : kCount / 3, DS_DTYPE_F32, "call");
      }
      comm.barrier("submitted");
      if (comm.rank() == 0) submitted = fake.counts().calls;
      comm.barrier("counted");
      rank.finish();
    });
  };
  fake.fail("");
  use();
  const int64_t calls = submitted;
  for (int64_t at = 1; at <= calls; at += 1 + calls / 60) {
    fake.fail("lost:" + std::to_string(at));
    EXPECT_THROW(use(), Error) << at;
    fake.fail("");
    EXPECT_EQ(fake.live(), before) << at;
  }
}

TEST_F(FakeCudaGroups, RefuseTypesThatTheyCannotAdd) {
  run_ranks(1, [&](Communicator& comm) {
    GroupRank rank(comm, 4096, Gpus::shared);
    expect_names(message_of(
                     [&] {
                       rank.run(Op::all_reduce, rank.arena->address(), rank.arena->address() + 2048,
                                4, DS_DTYPE_I32, "whole");
                     },
                     DS_ERROR_INTERNAL),
                 {"supports f32, bf16 and f16, got i32"});
  });
}

}  // namespace
}  // namespace ds::test
