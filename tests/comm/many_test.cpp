#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "comm/communicator.h"
#include "core/base/plugin.h"
#include "core/base/trace.h"
#include "support/errors.h"
#include "support/groups.h"
#include "support/spawn.h"
#include "support/temp_folder.h"

// Tests groups with many more ranks than cores: collectives, some of them with blocks of unequal
// sizes or empty ones, and how a group is formed or fails.
namespace ds {
namespace {

class Many : public testing::TestWithParam<test::GroupCase> {};

TEST_P(Many, CollectivesGiveEveryRankItsOwnResult) {
  test::on_group(GetParam(), [](Communicator& comm) {
    const auto w = static_cast<size_t>(comm.size()), me = static_cast<size_t>(comm.rank());
    auto count_of = [](size_t r) { return r % 5; };
    std::vector<size_t> counts, bytes;
    size_t total = 0;
    for (size_t r = 0; r < w; ++r) {
      counts.push_back(count_of(r));
      bytes.push_back(count_of(r) * sizeof(int64_t));
      total += count_of(r);
    }
    auto value = [](size_t from, size_t to, size_t i) {
      return static_cast<int64_t>(from * 1000003 + to * 1009 + i);
    };

    std::vector<int64_t> own(count_of(me)), all(total, -1);
    for (size_t i = 0; i < own.size(); ++i) own[i] = value(me, 0, i);
    comm.all_gather_v(own.data(), all.data(), bytes, "blocks");
    for (size_t r = 0, at = 0; r < w; ++r) {
      for (size_t i = 0; i < count_of(r); ++i) ASSERT_EQ(all[at++], value(r, 0, i));
    }

    std::vector<int64_t> sends(total), sum(count_of(me));
    for (size_t r = 0, at = 0; r < w; ++r) {
      for (size_t i = 0; i < count_of(r); ++i) sends[at++] = value(me, r, i);
    }
    comm.reduce_scatter_v(sends.data(), sum.data(), counts, DS_DTYPE_I64, "sums");
    for (size_t i = 0; i < sum.size(); ++i) {
      int64_t expected = 0;
      for (size_t r = 0; r < w; ++r) expected += value(r, me, i);
      ASSERT_EQ(sum[i], expected);
    }

    std::vector<int64_t> out(w), in(w), got(w);
    for (size_t r = 0; r < w; ++r) out[r] = value(me, r, 0);
    comm.all_to_all(out.data(), in.data(), sizeof(int64_t), "each");
    for (size_t r = 0; r < w; ++r) ASSERT_EQ(in[r], value(r, me, 0));
    comm.all_reduce(out.data(), got.data(), w, DS_DTYPE_I64, "all");
    for (size_t i = 0; i < w; ++i) {
      int64_t expected = 0;
      for (size_t r = 0; r < w; ++r) expected += value(r, i, 0);
      ASSERT_EQ(got[i], expected);
    }

    // The last rank broadcasts, and every even rank sends a message to the next rank.
    int64_t word = value(me, 7, 7);
    comm.broadcast(&word, sizeof word, comm.size() - 1, "one");
    ASSERT_EQ(word, value(w - 1, 7, 7));
    if (me + 1 < w && me % 2 == 0) comm.send(out.data(), sizeof(int64_t), comm.rank() + 1, "pair");
    if (me % 2 == 1) {
      comm.receive(&word, sizeof word, comm.rank() - 1, "pair");
      ASSERT_EQ(word, value(me - 1, 0, 0));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, Many,
                         testing::Values(test::GroupCase{"threads", 130},
                                         test::GroupCase{"threads", 67, false},
                                         test::GroupCase{"shm", 96}, test::GroupCase{"post", 24},
                                         test::GroupCase{"tcp", 66}),
                         test::group_name);

// Tests how many ranks can form a group, and how joining fails. With DS_LONG, the group has the
// documented number of ranks.
class Meeting : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (over_tcp() && !load_transport("tcp")) GTEST_SKIP() << "the transport tcp is not built";
    setenv("DS_JOB_KEY", "the key of many ranks", 1);
  }
  void TearDown() override { unsetenv("DS_JOB_KEY"); }
  bool over_tcp() const { return std::string(GetParam()) == "tcp"; }
  int ranks() const {
    const bool all = std::getenv("DS_LONG") != nullptr;
    return over_tcp() ? (all ? 128 : 24) : (all ? 256 : 66);
  }
  // Returns for how many milliseconds ranks wait for a missing rank.
  int64_t patience() const { return ranks() > 100 ? 8000 : 1500; }
  // Runs body(rank, join) in one process per rank, once all of them are running, because starting
  // so many processes may take longer than a rank waits. join(ms) creates the communicator of this
  // rank, and join(ms, r) one that joins as rank r.
  struct Join {
    std::string url;
    int rank, size;
    std::unique_ptr<Communicator> operator()(int64_t ms) const { return (*this)(ms, rank); }
    std::unique_ptr<Communicator> operator()(int64_t ms, int as) const {
      return create_communicator(url, {.rank = as, .size = size, .join_ms = ms});
    }
  };
  std::vector<int> on_ranks(const std::function<void(int, const Join&)>& body) {
    const std::string url =
        over_tcp() ? "tcp://" + folder_ / "meet" : fmt::format("shm://meeting-{}", getpid());
    void* shared = mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
    auto* started = new (shared) std::atomic<int>(0);
    std::vector<int> codes = test::spawn_processes(ranks(), [&](int rank) {
      for (++*started; *started < ranks();) test::pause_ms(1);
      body(rank, Join{url, rank, ranks()});
    });
    munmap(shared, sizeof(std::atomic<int>));
    return codes;
  }

  test::TempFolder folder_;
};

TEST_P(Meeting, IsFormedInTime) {
  // The bound is in seconds.
  const int64_t begin = now_ns(), bound = over_tcp() ? 30 : 10;
  const std::vector<int> codes = on_ranks([&](int, const Join& join) {
    auto comm = join(bound * 1000);
    comm->barrier("met");
    EXPECT_LT(now_ns() - begin, bound * 1'000'000'000);
  });
  EXPECT_EQ(codes, std::vector<int>(codes.size(), 0));
}

TEST_P(Meeting, NamesTheRankThatIsMissing) {
  const int missing = ranks() / 2;
  const std::vector<int> codes = on_ranks([&](int rank, const Join& join) {
    if (rank == missing) return;
    const std::string message = test::message_of([&] { join(patience()); });
    if (rank < 2) test::expect_names(message, {fmt::format("rank {}", missing)});
  });
  EXPECT_EQ(codes, std::vector<int>(codes.size(), 0));
}

// The late rank joins after the other ranks have given up, and must give up as well.
TEST_P(Meeting, NamesTheRankThatIsLate) {
  const int late = ranks() / 2;
  const std::vector<int> codes = on_ranks([&](int rank, const Join& join) {
    if (rank == late) test::pause_ms(static_cast<int>(patience()) + 2000);
    const std::string message = test::message_of([&] { join(rank == late ? 1000 : patience()); });
    if (rank < 2) test::expect_names(message, {fmt::format("rank {}", late)});
    if (rank == late) test::expect_names(message, {"1000 ms"});
  });
  EXPECT_EQ(codes, std::vector<int>(codes.size(), 0));
}

// One rank belongs to another job: its key differs, or its number is already taken.
TEST_P(Meeting, NamesTheRankThatIsForeign) {
  const int foreign = ranks() / 2;
  const std::vector<int> codes = on_ranks([&](int rank, const Join& join) {
    if (rank == foreign && over_tcp()) setenv("DS_JOB_KEY", "the key of another job", 1);
    const bool twice = rank == foreign && !over_tcp();
    const std::string message =
        test::message_of([&] { join(patience(), twice ? rank + 1 : rank); });
    if (rank == 0 || rank == foreign)
      test::expect_names(message, {fmt::format("rank {}", foreign + twice)});
    if (rank == foreign && over_tcp())
      test::expect_names(message, {"does not accept this rank's proof"});
    if (rank == 0 && over_tcp()) test::expect_names(message, {"did not prove the key"});
  });
  EXPECT_EQ(codes, std::vector<int>(codes.size(), 0));
}

TEST_P(Meeting, NamesTheRankThatIsKilled) {
  const auto killed = static_cast<size_t>(ranks() / 3);
  std::vector<int> codes = on_ranks([&](int rank, const Join& join) {
    auto comm = join(30000);
    comm->barrier("met");
    if (rank == static_cast<int>(killed)) kill(getpid(), SIGKILL);
    const int64_t begin = now_ns();
    const std::string message = test::message_of([&] {
      for (int i = 0; i < 2; ++i) comm->barrier("after");
    });
    EXPECT_LT(now_ns() - begin, 5'000'000'000);
    test::expect_names(message, {fmt::format("rank {}", killed)});
  });
  EXPECT_EQ(codes[killed], 128 + SIGKILL);
  codes[killed] = 0;
  EXPECT_EQ(codes, std::vector<int>(codes.size(), 0));
}

INSTANTIATE_TEST_SUITE_P(All, Meeting, testing::Values("shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ds
