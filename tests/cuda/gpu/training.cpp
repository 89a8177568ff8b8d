// Checks engines on the device: equal bits over stages, tiers and ranks, losses close to the CPU's,
// and the planned memory.
#include <fmt/core.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "cuda/gpu/check.h"
#include "engine/engine.h"
#include "support/ranks.h"
#include "support/same_bits.h"

namespace ds::test {
namespace {

constexpr int kSteps = 3;

struct Trained {
  std::vector<double> losses;
  // memory: the difference between used and planned memory, or "".
  std::string hash, memory;
};

// Returns a folder on this machine's file system, because the build folder may be on another
// machine.
std::string files() {
  return std::filesystem::temp_directory_path().string() + fmt::format("/gpu_check.{}", getpid());
}

std::string unplanned(const Engine& engine) {
  std::string out;
  for (Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
    const int64_t planned = engine.plan().memory.total(tier), taken = engine.runtime().mapped(tier);
    if (planned != taken)
      out += fmt::format("tier {}: planned {}, taken {} ", tier_name(tier), planned, taken);
  }
  return out;
}

Trained train(const Point& p, const std::string& device) {
  std::vector<Trained> ranks(static_cast<size_t>(p.world));
  run_ranks(p.world, [&](Communicator& comm) {
    Config config = config_of(p);
    config.device = device;
    config.zero.nvme_path = files();
    Engine engine(config, graph_of(p), comm, {});
    Trained& own = ranks[static_cast<size_t>(comm.rank())];
    for (int step = 0; step < kSteps; ++step)
      own.losses.push_back(train_step(p, engine, step).loss);
    own.hash = state_hash(engine.store());
    own.memory = unplanned(engine);
  });
  std::error_code ignored;
  std::filesystem::remove_all(files(), ignored);
  for (size_t r = 1; r < ranks.size(); ++r) {
    // Without losses, the result equals no other.
    if (ranks[r].losses != ranks[0].losses) ranks[0].losses.clear();
    ranks[0].memory += ranks[r].memory;
  }
  return ranks[0];
}

Point point_of(DType compute, int world) {
  Point p;
  p.world = world;
  p.compute = compute;
  return p;
}

// Returns the results of training without ZeRO and offload on this device, cached for the process.
const Trained& plain(Session& session, DType compute, int world) {
  static std::map<std::pair<DType, int>, Trained> known;
  auto found = known.find({compute, world});
  if (found == known.end())
    found =
        known.emplace(std::pair{compute, world}, train(point_of(compute, world), session.name()))
            .first;
  return found->second;
}

// Compares with plain(). As on the CPU, one rank adds its leaves in another order than several
// ranks do; all others have equal bits.
void same_bits(Session& session, Report& report, int stage, int world,
               const std::vector<Tier>& tiers) {
  for (Tier tier : tiers) {
    Point p = point_of(DS_DTYPE_F32, world);
    p.stage = stage;
    p.tier = tier;
    report.attempt(p.name(), [&] {
      const Trained& want = plain(session, p.compute, world == 1 ? 1 : 2);
      const Trained got = train(p, session.name());
      const std::string what =
          fmt::format("stage {} tier {} ranks {}", stage, tier_name(tier), world);
      report.equal(got.losses == want.losses && !got.losses.empty(), what + ": losses");
      report.equal(got.hash == want.hash, what + ": states");
      report.equal(got.memory.empty(), what + ": " + got.memory);
    });
  }
}

void near_the_cpu(Session& session, Report& report, DType compute) {
  const double tolerance = compute == DS_DTYPE_F32 ? 1e-5 : 2e-2;
  const std::vector<double>& there = plain(session, compute, 1).losses;
  const std::vector<double> here = train(point_of(compute, 1), "cpu").losses;
  for (size_t i = 0; i < here.size(); ++i)
    report.compare(std::abs(there.at(i) - here[i]) / tolerance,
                   fmt::format("step {}: {} and {}", i, there[i], here[i]));
}

// Checks that creating and destroying engines repeatedly does not change the device's free memory.
void given_back(Session& session, Report& report) {
  Device& device = session.device();
  // Libraries keep some memory after their first use.
  train(point_of(DS_DTYPE_BF16, 1), session.name());
  const int64_t before = *device.free_memory();
  for (int i = 0; i < (session.small() ? 2 : 10); ++i)
    train(point_of(DS_DTYPE_BF16, 2), session.name());
  const int64_t after = *device.free_memory();
  report.figure("MiB that did not come back", static_cast<double>((before - after) >> 20));
  report.compare(static_cast<double>(before - after) / (32 << 20),
                 "memory of engines that have ended");
}

}  // namespace

void add_training_checks(std::vector<Check>& checks, bool small) {
  for (DType compute : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
    checks.push_back({"B", "training", std::string("near the CPU, ") + dtype_name(compute),
                      "losses with the CPU's", [=](Session& session, Report& report) {
                        near_the_cpu(session, report, compute);
                      }});
  }
  for (int world : {1, 2, 4}) {
    for (int stage : {0, 1, 2, 3}) {
      std::vector<Tier> tiers{Tier::device, Tier::host, Tier::nvme};
      if (small) {
        if ((stage == 3) != (world == 2)) continue;
        if (world == 4 && stage != 1) continue;
        tiers = {tiers[static_cast<size_t>(stage) % 3]};
      }
      checks.push_back({"B", "same bits",
                        fmt::format("stage {}, {} rank{}", stage, world, world == 1 ? "" : "s"),
                        "losses, states and memory with those of stage 0, and with the plan",
                        [=](Session& session, Report& report) {
                          same_bits(session, report, stage, world, tiers);
                        }});
    }
  }
  checks.push_back({"B", "training", "memory comes back",
                    "free memory after engines have ended with that before", given_back});
}

}  // namespace ds::test
