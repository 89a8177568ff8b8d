// Kills a training run repeatedly and lets it resume. Whenever it is killed, the last committed
// checkpoint loads, no committed step is lost, and every later loss has the same bits as in a run
// that was never killed.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <map>
#include <random>

#include "checkpoint/folder.h"
#include "checkpoint/payload.h"
#include "checkpoint/reader.h"
#include "io/file.h"
#include "support/spawn.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

constexpr int64_t kSteps = 12;
const std::string kBinary = DS_BINARY_DIR;

struct Place {
  int world = 2;
  int stage = 1;
  std::string tier = "device";
  bool reproducible = false;
  bool async = false;
};

// The point at which rank `victim` is killed: at the n-th call of the given kind that the fault
// shim counts, or before the n-th instruction.
struct KillPoint {
  std::string kind = "none";
  int n = 0;
  int victim = 0;
  std::string text() const { return fmt::format("{}:{} on rank {}", kind, n, victim); }
};

struct Launch {
  // Whether the victim died at its kill point.
  bool killed = false;
  bool finished = false;
  int64_t resumed = 0;
  // The loss of each step as a hexadecimal float.
  std::map<int64_t, std::string> losses;
  std::string errors;
};

// Waits for all ranks. This process signals none of them: when one rank dies, the others end by
// themselves.
void wait_ranks(const std::vector<pid_t>& ranks, int victim, Launch& launch) {
  launch.finished = true;
  for (size_t left = ranks.size(); left > 0; --left) {
    int status = 0;
    pid_t pid = waitpid(-1, &status, 0);
    launch.finished = launch.finished && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (WIFSIGNALED(status) && pid == ranks[static_cast<size_t>(victim)]) launch.killed = true;
  }
}

Launch run(const std::string& folder, const Place& place, int64_t steps, const KillPoint& point) {
  static int serial = 0;
  TempFolder output;
  std::string url = fmt::format("shm://crash-{}-{}", getpid(), serial++);
  std::vector<pid_t> ranks;
  for (int r = 0; r < place.world; ++r) {
    bool mine = r == point.victim, instr = point.kind == "instr";
    std::vector<std::string> environment = {"ASAN_OPTIONS=verify_asan_link_order=0"};
    if (place.async) environment.push_back("DS_TEST_ASYNC=1");
    if (mine && !instr && point.n > 0) {
      environment.push_back("LD_PRELOAD=" + kBinary + "/lib/libds_fault_shim.so");
      environment.push_back(fmt::format("DS_TEST_KILL={}:{}", point.kind, point.n));
    }
    ranks.push_back(start_process(
        {kBinary + "/bin/crash_driver", std::to_string(r), std::to_string(place.world), url, folder,
         std::to_string(steps), std::to_string(place.stage), place.tier,
         place.reproducible ? "1" : "0", mine && instr ? std::to_string(point.n) : "0"},
        environment, output / fmt::format("out{}", r), output / fmt::format("err{}", r)));
  }
  Launch launch;
  wait_ranks(ranks, point.victim, launch);
  std::ifstream out(output / "out0");
  std::string word, value;
  while (out >> word >> value) {
    if (word == "resume") {
      launch.resumed = std::stoll(value);
    } else {
      launch.losses[std::stoll(word)] = value;
    }
  }
  for (int r = 0; r < place.world; ++r)
    launch.errors += read_file(output / fmt::format("err{}", r));
  return launch;
}

// The losses and the checkpoint hash of a run that is never killed.
struct Reference {
  std::map<int64_t, std::string> losses;
  std::string hash;

  explicit Reference(const Place& place) {
    TempFolder folder;
    Launch whole = run(folder.path(), place, kSteps, {});
    EXPECT_TRUE(whole.finished) << whole.errors;
    losses = whole.losses;
    hash = payload_hash(latest_checkpoint(folder.path()));
    EXPECT_EQ(losses.size(), static_cast<size_t>(kSteps));
    EXPECT_NE(losses[1], losses[kSteps]);
  }
};

int64_t committed(const std::string& folder) {
  std::string last = latest_checkpoint(folder);
  return last.empty() ? 0 : read_checkpoint_info(last).step;
}

// Draws a kill point that falls, in most cases, into the first two saves of a launch.
KillPoint draw(std::mt19937& random, int world) {
  static const std::vector<std::pair<std::string, int>> kinds = {
      {"write", 140}, {"sync", 24}, {"rename", 3}, {"unlink", 12}, {"instr", 700}};
  const auto& [kind, range] = kinds[random() % kinds.size()];
  KillPoint point{kind, 1 + static_cast<int>(random() % static_cast<uint32_t>(range)), 0};
  // Only rank 0 renames and removes.
  if (kind != "rename" && kind != "unlink") point.victim = static_cast<int>(random()) & (world - 1);
  return point;
}

// Starts launches until `kills` of them were killed at their kill point. A run that reaches the
// last step is checked, and a new one begins. place_of chooses the world size, stage and tier of
// each launch.
void survive(const Reference& reference, int kills, uint32_t seed,
             const std::function<Place(std::mt19937&)>& place_of) {
  std::mt19937 random(seed);
  std::map<std::string, int> killed;
  int64_t resumed = 0;
  auto folder = std::make_unique<TempFolder>();
  for (int done = 0, launches = 0; done < kills; ++launches) {
    ASSERT_LT(launches, 3 * kills) << "too few kill points are reached";
    Place place = place_of(random);
    KillPoint point = draw(random, place.world);
    SCOPED_TRACE(fmt::format("launch {}: kill {}, world {} stage {} tier {}", launches,
                             point.text(), place.world, place.stage, place.tier));
    int64_t before = committed(folder->path());
    Launch launch = run(folder->path(), place, kSteps, point);
    ASSERT_TRUE(launch.killed || launch.finished) << launch.errors;
    if (launch.finished || !launch.losses.empty()) {
      ASSERT_EQ(launch.resumed, before);
    }
    for (const auto& [step, loss] : launch.losses)
      ASSERT_EQ(loss, reference.losses.at(step)) << "step " << step;
    int64_t after = committed(folder->path());
    ASSERT_GE(after, before);
    // A synchronous save returns only after it is committed, and the loss of the next step proves
    // that it returned. A background save first waits for the previous one.
    int64_t reached = launch.losses.empty() ? 0 : launch.losses.rbegin()->first;
    ASSERT_GE(after, (reached - 1) / 2 * 2 - (place.async ? 2 : 0));
    done += launch.killed;
    killed[point.kind] += launch.killed;
    resumed += launch.resumed > 0;
    if (launch.finished) {
      ASSERT_EQ(payload_hash(latest_checkpoint(folder->path())), reference.hash);
      folder = std::make_unique<TempFolder>();
    }
  }
  EXPECT_GT(resumed, kills / 3);
  for (const auto& [kind, count] : killed) fmt::print("killed at {}: {}\n", kind, count);
  EXPECT_EQ(killed.size(), 5u);
}

TEST(Crash, TwoRanksResumeWithTheSameBits) {
  Place place{2, 1, "device", false};
  survive(Reference(place), 50, 1, [&](std::mt19937&) { return place; });
}

TEST(Crash, BackgroundSavesResumeWithTheSameBits) {
  Place place{2, 1, "device", false, true};
  survive(Reference(place), 30, 3, [&](std::mt19937&) { return place; });
}

TEST(Crash, AnyWorldSizeStageAndTierResumesWithTheSameBits) {
  survive(Reference({2, 0, "device", true}), 25, 2, [](std::mt19937& random) {
    static const std::vector<Place> places = {{1, 0, "device", true}, {2, 1, "device", true},
                                              {1, 3, "device", true}, {2, 3, "nvme", true},
                                              {2, 2, "cpu", true},    {2, 3, "device", true}};
    return places[random() % places.size()];
  });
}

}  // namespace
}  // namespace ds::test
