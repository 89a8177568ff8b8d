#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/plugin.h"
#include "core/base/version.h"
#include "support/errors.h"
#include "support/spawn.h"
#include "support/temp_folder.h"

// Ranks that run different builds of libds must not form a group, and each of them must name both
// builds. mpi.sh tests this over MPI.
namespace ds::test::builds_test {
namespace {

constexpr const char* kOther = "9.8.7 (sources 0123456789)";

struct Ended {
  bool joined = false;
  std::string message;
};

class Builds : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (tcp() && !load_transport("tcp")) GTEST_SKIP() << "the transport tcp is not built";
  }
  bool tcp() const { return std::string(GetParam()) == "tcp"; }

  // Starts a group whose rank r runs programs[r], and returns how each rank ended. Rank 0 starts
  // last, so that the others must wait for it.
  std::vector<Ended> meet(const std::vector<const char*>& programs) {
    std::string url =
        tcp() ? "tcp://" + folder_ / "meet" : fmt::format("shm://builds-{}", getpid());
    std::vector<pid_t> processes(programs.size());
    for (size_t r = programs.size(); r-- > 0;) {
      // Over shm, rank 0 keeps waiting for a replacement of the rank that it refused.
      bool waits_in_vain = r == 0 && !tcp();
      std::string out = out_of(r);
      processes[r] =
          start_process({std::string(DS_BINARY_DIR) + "/bin/" + programs[r], url, std::to_string(r),
                         std::to_string(programs.size()), waits_in_vain ? "3000" : "30000"},
                        {}, out, out + ".err");
    }
    std::vector<Ended> ends;
    for (size_t r = 0; r < processes.size(); ++r) {
      int status = 0;
      EXPECT_EQ(waitpid(processes[r], &status, 0), processes[r]);
      std::ostringstream message;
      message << std::ifstream(out_of(r)).rdbuf();
      ends.push_back({status == 0, message.str()});
    }
    return ends;
  }

 private:
  std::string out_of(size_t rank) const { return folder_ / std::to_string(rank); }

  TempFolder folder_;
};

// Proves {comm.create.refused} for versions.
TEST_P(Builds, DifferentBuildsAreRefused) {
  std::vector<Ended> ends = meet({"join_rank", "join_rank", "join_rank_other"});
  for (const Ended& end : ends) {
    EXPECT_FALSE(end.joined);
    expect_names(end.message, {std::string("rank 2 runs libds ") + kOther,
                               std::string(" runs libds ") + library_build(),
                               "all ranks must run the same build"});
  }
}

TEST_P(Builds, EqualBuildsJoin) {
  for (const char* program : {"join_rank", "join_rank_other"}) {
    for (const Ended& end : meet({program, program})) EXPECT_TRUE(end.joined) << end.message;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Builds, testing::Values("shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ds::test::builds_test
