// Tests the memory promise, observed from outside the library. The arenas and files that
// count_shim.c counts in the process of each rank equal the plan, and all other memory is at most
// the overhead row. The resident memory that Linux reports is at most the plan, the overhead row
// and 64 MiB together.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include "io/file.h"
#include "support/spawn.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

constexpr int64_t kPage = 4096, kMiB = int64_t{1} << 20;
const std::string kBinary = DS_BINARY_DIR;

struct Mapping {
  int64_t asked = 0, bytes = 0;
  bool shared = false;
};

// The output of one rank.
struct Rank {
  std::map<std::string, std::vector<int64_t>> values;
  std::vector<Mapping> mappings;
  std::string errors;
  bool finished = false;

  int64_t operator[](const std::string& name) const {
    auto at = values.find(name);
    if (at == values.end()) ADD_FAILURE() << "no " << name << "; " << errors;
    return at == values.end() ? 0 : at->second.back();
  }
  int64_t plan(const std::string& tier) const {
    return (*this)["plan." + tier + ".persistent"] + (*this)["plan." + tier + ".transient"];
  }
};

Rank read_rank(const std::string& out, const std::string& err) {
  Rank rank;
  std::istringstream lines(read_file(out));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (name == "mapping") {
      Mapping m;
      words >> m.asked >> m.bytes >> m.shared;
      rank.mappings.push_back(m);
    } else if (int64_t value = 0; words >> value) {
      rank.values[name].push_back(value);
    }
  }
  rank.errors = read_file(err);
  return rank;
}

struct Place {
  int stage;
  std::string tier, model = "small";
};
void PrintTo(const Place& place, std::ostream* out) {
  *out << place.model << " stage " << place.stage << " tier " << place.tier;
}

std::vector<Rank> launch(int world, int steps, const Place& place, int64_t budget = -1) {
  static int serial = 0;
  TempFolder folder, output;
  std::string url = world == 1 ? "self" : fmt::format("shm://memory-{}-{}", getpid(), serial++);
  std::vector<pid_t> pids;
  for (int r = 0; r < world; ++r) {
    pids.push_back(
        start_process({kBinary + "/bin/memory_driver", std::to_string(r), std::to_string(world),
                       url, folder.path(), std::to_string(steps), std::to_string(place.stage),
                       place.tier, std::to_string(budget), place.model},
                      {"LD_PRELOAD=" + kBinary + "/lib/libds_count_shim.so"},
                      output / fmt::format("out{}", r), output / fmt::format("err{}", r)));
  }
  std::vector<Rank> ranks;
  for (int r = 0; r < world; ++r) {
    int status = 0;
    waitpid(pids[static_cast<size_t>(r)], &status, 0);
    ranks.push_back(read_rank(output / fmt::format("out{}", r), output / fmt::format("err{}", r)));
    ranks.back().finished = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  return ranks;
}

int64_t whole_pages(int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Removes the arenas of the plan from the live mappings, each by its exact size, and returns the
// sum of their sizes in whole pages.
int64_t find_arenas(const Rank& rank) {
  std::vector<Mapping> left = rank.mappings;
  int64_t sum = 0;
  for (const char* arena :
       {"device.persistent", "device.transient", "host.persistent", "host.transient"}) {
    int64_t planned = rank[std::string("plan.") + arena];
    if (planned == 0) continue;
    auto at = std::find_if(left.begin(), left.end(),
                           [&](const Mapping& m) { return !m.shared && m.asked == planned; });
    if (at == left.end()) {
      ADD_FAILURE() << "no mapping has the " << planned << " bytes of " << arena;
      continue;
    }
    EXPECT_EQ(at->bytes, whole_pages(planned));
    sum += at->bytes;
    left.erase(at);
  }
  // The remaining private mappings hold oneDNN's code, one for each primitive.
  for (const Mapping& m : left) EXPECT_TRUE(m.shared || m.bytes < kMiB) << m.bytes;
  return sum;
}

class MemoryOnce : public testing::Test {
 protected:
  void SetUp() override {
    if (!exists(kBinary + "/bin/memory_driver"))
      GTEST_SKIP() << "a sanitizer's malloc is not counted";
  }
};

class Memory : public MemoryOnce, public testing::WithParamInterface<Place> {};

// Checks the resident memory at every step. Linux charges each rank for every staging page that it
// has touched, including pages in the other rank's slot.
void check_resident(const Rank& rank, size_t steps) {
  const std::vector<int64_t>& resident = rank.values.at("resident");
  ASSERT_EQ(resident.size(), steps);
  int64_t most = *std::max_element(resident.begin(), resident.end());
  int64_t plan = rank.plan("device") + rank.plan("host");
  EXPECT_LE(most, plan + rank["overhead"] + 64 * kMiB);
  EXPECT_LE(most - rank["base.resident"], plan + rank["overhead"]);
  EXPECT_GT(most, plan / 2) << "the samples do not show the arenas";
}

TEST_P(Memory, CountedMemoryEqualsPlanAndOverhead) {
  const std::string& tier = GetParam().tier;
  int steps = GetParam().model == "main" ? 2 : 10;
  for (const Rank& rank : launch(2, steps, GetParam())) {
    ASSERT_TRUE(rank.finished) << rank.errors;
    int64_t arenas = find_arenas(rank);
    EXPECT_EQ(rank["create.file"], rank.plan("nvme"));
    EXPECT_EQ(rank["create.file_calls"], tier == "nvme" ? 1 : 0);
    EXPECT_EQ(rank.plan("nvme") > 0, tier == "nvme");
    EXPECT_GT(rank.plan(tier == "cpu" ? "host" : tier), kMiB);
    // `other` is the peak of all other memory during creation, steps, a save and a load. Each rank
    // bears its share of the staging memory.
    int64_t peak =
        std::max({rank["create.total_peak"], rank["train.total_peak"], rank["save.total_peak"]});
    int64_t other =
        peak - rank["base.heap"] - arenas + rank["create.shared"] / 2 + rank["train.stacks"];
    EXPECT_LE(other, rank["overhead"]);
    // The overhead row is at most 1.25 times the counted amount. With states in files it includes
    // one checkpoint block more, which only a parameter of that size touches.
    int64_t untouched = tier == "nvme" && GetParam().model == "small" ? 4 * kMiB : 0;
    EXPECT_LE(rank["overhead"] - untouched, other + other / 4) << "the overhead row is padded";
    EXPECT_LE(rank["train.stacks"], rank["thread_stacks"]);
    // The steps take at most a page of heap beyond what creation took.
    EXPECT_EQ(rank["train.mapped"], rank["create.mapped"]);
    EXPECT_EQ(rank["train.shared_peak"], rank["create.shared"]);
    EXPECT_EQ(rank["train.file_peak"], rank["create.file"]);
    EXPECT_LE(rank["train.heap"] - rank["create.heap"], kPage);
    check_resident(rank, static_cast<size_t>(steps));
  }
}

INSTANTIATE_TEST_SUITE_P(Places, Memory,
                         testing::Values(Place{0, "device"}, Place{0, "nvme"}, Place{3, "device"},
                                         Place{3, "cpu"}, Place{3, "nvme"},
                                         Place{3, "nvme", "vocab"}, Place{3, "nvme", "main"}),
                         [](const auto& p) {
                           return fmt::format("{}_stage{}_{}", p.param.model, p.param.stage,
                                              p.param.tier);
                         });

TEST_F(MemoryOnce, ATooSmallBudgetIsRefusedBeforeMemoryIsTaken) {
  for (const Rank& rank : launch(2, 1, {3, "nvme"}, 1'000'000)) {
    EXPECT_FALSE(rank.finished);
    EXPECT_NE(rank.errors.find("memory_budget is too small"), std::string::npos) << rank.errors;
    EXPECT_NE(rank.errors.find("optimizer states"), std::string::npos) << rank.errors;
    EXPECT_EQ(rank["refused.largest_mapping"], 0);
    EXPECT_EQ(rank["refused.file_calls"], 0);
    // The largest chunk is the scratch memory of two threads.
    EXPECT_LE(rank["refused.largest_chunk"], 4 * kMiB + 2 * kPage);
  }
}

TEST_F(MemoryOnce, ThreeHundredStepsTakeNoMoreMemory) {
  Rank rank = launch(1, 300, {3, "nvme"})[0];
  ASSERT_TRUE(rank.finished) << rank.errors;
  // Compares the smallest of twenty samples near the start and at the end, because on a busy
  // machine writes of one step may still be running when the next step has ended.
  auto grown = [&](const std::string& name) {
    const std::vector<int64_t>& samples = rank.values.at(name);
    EXPECT_EQ(samples.size(), 300u);
    return *std::min_element(samples.end() - 20, samples.end()) -
           *std::min_element(samples.begin() + 40, samples.begin() + 60);
  };
  EXPECT_EQ(grown("descriptors"), 0);
  EXPECT_LE(grown("heap"), 256);
  EXPECT_LE(grown("resident"), 256 * 1024);
  EXPECT_EQ(rank["train.mapped"], rank["create.mapped"]);
}

}  // namespace
}  // namespace ds::test
