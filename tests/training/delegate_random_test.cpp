// Tests random delegate hosts. The results of their calls must equal those of a reference.
//
// DS_SEEDS=17 runs only seed 17 and DS_SEEDS=1000:5000 runs seeds 1000 to 4999, both in the first
// test. DS_SHOW_CALLS=1 prints the calls of rank 0.
#include <gtest/gtest.h>

#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "../../tools/certificate/check.h"
#include "compile/certificate.h"
#include "support/random_host.h"
#include "support/ranks.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

constexpr uint64_t kTests = 10, kSeedsOfATest = 24;

std::pair<uint64_t, uint64_t> seeds_of(uint64_t test) {
  const char* wanted = std::getenv("DS_SEEDS");
  if (!wanted) return {test * kSeedsOfATest, (test + 1) * kSeedsOfATest};
  char* rest = nullptr;
  uint64_t first = std::strtoull(wanted, &rest, 10);
  if (test > 0) return {0, 0};
  return {first, *rest == ':' ? std::strtoull(rest + 1, nullptr, 10) : first + 1};
}

// A collection of the recorded and compiled steps of all ranks.
class Records {
 public:
  explicit Records(int world) : ranks_(static_cast<size_t>(world)) {}
  void add(const Program& step) {
    std::lock_guard lock(mutex_);
    ranks_[static_cast<size_t>(step.rank)].push_back(step);
  }
  // Returns the first finding of the certificate checker about the latest record of each rank, or
  // "" if there is no finding or a rank has no record.
  std::string finding() const {
    std::vector<std::vector<const Program*>> given;
    for (const std::vector<Program>& rank : ranks_) {
      if (rank.empty()) return "";
      given.push_back({&rank.back()});
    }
    std::vector<std::string> findings = ::certificate::check(certificate(given));
    return findings.empty() ? "" : findings[0];
  }

 private:
  std::mutex mutex_;
  std::vector<std::vector<Program>> ranks_;
};

std::string run_seed(uint64_t seed) {
  RandomCase c = random_case(seed);
  Records records(c.world);
  c.options.program_filter = [&](const Program& step) { records.add(step); };
  TempFolder folder;
  try {
    run_ranks(c.world, [&](Communicator& comm) { RandomHost(c, comm, folder.path()).run(); });
  } catch (const std::exception& error) {
    return c.text() + "\n  " + error.what();
  }
  std::string finding = records.finding();
  return finding.empty() ? "" : c.text() + "\n  " + finding;
}

class DelegateRandom : public testing::TestWithParam<uint64_t> {};

TEST_P(DelegateRandom, HostsGetExactGradients) {
  auto [first, end] = seeds_of(GetParam());
  for (uint64_t seed = first; seed < end; ++seed) EXPECT_EQ(run_seed(seed), "");
}

INSTANTIATE_TEST_SUITE_P(Seeds, DelegateRandom, testing::Range<uint64_t>(0, kTests));

}  // namespace
}  // namespace ds::test
