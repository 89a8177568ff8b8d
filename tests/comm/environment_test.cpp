#include "comm/environment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "core/base/error.h"
#include "support/errors.h"

namespace ds {
namespace {

using Variables = std::map<std::string, std::string>;

Place place_of(const Variables& variables) {
  return place_of_environment([&](const char* name) -> const char* {
    auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

void expect_place(const Variables& variables, int rank, int size, const std::string& url) {
  Place place = place_of(variables);
  EXPECT_EQ(place.rank, rank);
  EXPECT_EQ(place.size, size);
  EXPECT_EQ(place.url, url);
}

std::string refusal_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}
std::string refusal(const Variables& variables) {
  return refusal_of([&] { place_of(variables); });
}

TEST(Environment, WithoutALauncherThereIsOneRank) {
  expect_place({}, 0, 1, "self");
  expect_place({{"WORLD_SIZE", "1"}, {"RANK", "0"}, {"DS_COMM_URL", "shm://x"}}, 0, 1, "self");
  expect_place({{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}}, 0, 1, "self");
  // In a batch script of Slurm, the job has tasks, but this process is not one of them.
  expect_place({{"SLURM_JOB_ID", "5"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}, 0, 1, "self");
}

TEST(Environment, LibdsLaunchTellsTheRankAndTheUrl) {
  expect_place({{"WORLD_SIZE", "4"}, {"RANK", "3"}, {"DS_COMM_URL", "shm://x"}}, 3, 4, "shm://x");
  // Variables of mpirun, srun or torchrun are ignored if that launcher started `libds launch`,
  // which then lists them in DS_OUTER_LAUNCHERS. If the launcher was started below `libds launch`,
  // its variables contradict those of `libds launch` and are refused.
  Variables alone{{"WORLD_SIZE", "1"}, {"RANK", "0"}, {"DS_COMM_URL", "shm://x"}};
  for (const char* word :
       {"OMPI_COMM_WORLD_SIZE=3", "PMI_SIZE=3", "SLURM_STEP_NUM_TASKS=3", "LOCAL_WORLD_SIZE=3"}) {
    Variables inner = alone, outer = alone;
    const std::string text = word, name = text.substr(0, text.find('='));
    inner[name] = outer[name] = "3";
    outer["DS_OUTER_LAUNCHERS"] = "A=1 " + text + " B=2";
    expect_place(outer, 0, 1, "self");
    EXPECT_NE(refusal(inner).find(name), std::string::npos) << refusal(inner);
    outer[name] = "2";
    EXPECT_NE(refusal(outer).find(name), std::string::npos) << refusal(outer);
  }
}

Variables torchrun(const char* local) {
  return {{"WORLD_SIZE", "4"},
          {"RANK", "1"},
          {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", local},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", "40001"},
          {"TORCHELASTIC_RUN_ID", "0a1b"},
          {"TORCHELASTIC_RESTART_COUNT", "2"}};
}

TEST(Environment, TorchrunTellsTheRankAndTheUrl) {
  expect_place(torchrun("4"), 1, 4, "shm://torchrun-40001-2-0a1b");
  Variables long_id = torchrun("4");
  long_id["TORCHELASTIC_RUN_ID"] = std::string(200, 'r');
  EXPECT_LE(place_of(long_id).url.size(), 80u);
  expect_place(torchrun("2"), 1, 4, "tcp://127.0.0.1:40001/torchrun-2-0a1b");
  Variables own_store = torchrun("2");
  own_store["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  expect_place(own_store, 1, 4, "tcp://127.0.0.1:40002/torchrun-2-0a1b");
  own_store.erase("MASTER_ADDR");
  EXPECT_EQ(refusal(own_store),
            "comm url 'env' needs the environment variable MASTER_ADDR, which is not set");
  expect_place({{"WORLD_SIZE", "4"}, {"RANK", "1"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "9"}}, 1,
               4, "tcp://a:9");
}

TEST(Environment, MpirunTellsTheRank) {
  expect_place({{"OMPI_COMM_WORLD_SIZE", "3"}, {"OMPI_COMM_WORLD_RANK", "2"}}, 2, 3, "mpi");
  expect_place({{"PMI_SIZE", "3"}, {"PMI_RANK", "1"}}, 1, 3, "mpi");
  expect_place({{"MV2_COMM_WORLD_SIZE", "3"}, {"MV2_COMM_WORLD_RANK", "1"}}, 1, 3, "mpi");
}

TEST(Environment, FluxTellsTheRankAndTheUrl) {
  Variables flux{{"FLUX_TASK_RANK", "2"},
                 {"FLUX_JOB_SIZE", "4"},
                 {"FLUX_JOB_NNODES", "1"},
                 {"FLUX_JOB_ID", "77"}};
  expect_place(flux, 2, 4, "shm://flux-77");
  flux["FLUX_JOB_NNODES"] = "2";
  EXPECT_NE(refusal(flux).find("flux run started 4 ranks on 2 hosts without PMI"),
            std::string::npos);
  flux["PMI_RANK"] = "2";
  flux["PMI_SIZE"] = "4";
  expect_place(flux, 2, 4, "mpi");
}

Variables srun(const char* hosts) {
  return {{"SLURM_JOB_ID", "77"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_PROCID", "5"},
          {"SLURM_STEP_NUM_TASKS", "8"},
          {"SLURM_STEP_NUM_NODES", hosts}};
}

TEST(Environment, SlurmTellsTheRankAndTheUrl) {
  expect_place(srun("1"), 5, 8, "shm://slurm-77-0");
  Variables pmix = srun("2");
  pmix["PMIX_RANK"] = "5";
  expect_place(pmix, 5, 8, "mpi");
  Variables pmi2 = srun("2");
  pmi2["PMI_RANK"] = "5";
  pmi2["PMI_SIZE"] = "8";
  expect_place(pmi2, 5, 8, "mpi");
  EXPECT_EQ(refusal(srun("2")),
            "srun started 8 ranks on 2 hosts without PMIx: add --mpi=pmix to srun");
}

TEST(Environment, AnEmptyVariableCountsAsUnset) {
  expect_place({{"WORLD_SIZE", ""}, {"RANK", ""}}, 0, 1, "self");
  expect_place({{"WORLD_SIZE", ""}, {"OMPI_COMM_WORLD_SIZE", "3"}, {"OMPI_COMM_WORLD_RANK", "2"}},
               2, 3, "mpi");
  EXPECT_EQ(refusal({{"WORLD_SIZE", "4"}, {"DS_COMM_URL", "shm://x"}, {"RANK", ""}}),
            "comm url 'env' needs the environment variable RANK, which is not set");
}

// `WORLD_SIZE=1 RANK=0 mpirun -n 2 libds train` would start two separate runs of one rank.
TEST(Environment, AStaleWorldSizeIsRefused) {
  EXPECT_EQ(
      refusal({{"WORLD_SIZE", "1"}, {"RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}}),
      "WORLD_SIZE is 1, but mpirun started 2 processes (OMPI_COMM_WORLD_SIZE): unset WORLD_SIZE "
      "and RANK to train on all of them, or unset OMPI_COMM_WORLD_SIZE to train in each");
  for (const char* size : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    Variables given{{"WORLD_SIZE", "4"}, {"RANK", "1"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "9"}};
    for (const char* fitting : {"1", "2", "4"}) {
      given[size] = fitting;
      expect_place(given, 1, 4, "tcp://a:9");
    }
    for (const char* other : {"3", "8"}) {
      given[size] = other;
      EXPECT_NE(refusal(given).find(size), std::string::npos);
    }
  }
  // A url does not show which launcher started the process; torchrun's variables do.
  EXPECT_NE(
      refusal({{"WORLD_SIZE", "1"}, {"DS_COMM_URL", "shm://x"}, {"OMPI_COMM_WORLD_SIZE", "2"}})
          .find("mpirun"),
      std::string::npos);
  expect_place({{"WORLD_SIZE", "1"}, {"TORCHELASTIC_RUN_ID", "x"}, {"SLURM_STEP_NUM_TASKS", "2"}},
               0, 1, "self");
}

TEST(Environment, ContradictionsNameBothVariables) {
  const std::string unset = ": unset the variables of the launcher that did not start this process";
  EXPECT_EQ(refusal({{"RANK", "1"}}),
            "RANK is 1, but WORLD_SIZE is not set: set both, or unset RANK");
  EXPECT_EQ(refusal({{"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}}),
            "LOCAL_RANK is 1, but WORLD_SIZE is not set: set RANK and WORLD_SIZE, or unset "
            "LOCAL_RANK");
  expect_place({{"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}}, 0, 1, "self");
  expect_place({{"LOCAL_RANK", "-1"}}, 0, 1, "self");
  EXPECT_EQ(refusal({{"WORLD_SIZE", "4"}, {"RANK", "4"}, {"DS_COMM_URL", "shm://x"}}),
            "RANK must be 0 to 3 where WORLD_SIZE is 4, got 4");
  EXPECT_EQ(refusal({{"WORLD_SIZE", "0"}, {"RANK", "0"}}), "WORLD_SIZE must be 1 or more, got 0");
  EXPECT_EQ(refusal({{"RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "1"}}),
            "RANK is 0, but OMPI_COMM_WORLD_RANK is 1" + unset);
  EXPECT_EQ(refusal({{"WORLD_SIZE", "2"},
                     {"RANK", "0"},
                     {"DS_COMM_URL", "shm://x"},
                     {"OMPI_COMM_WORLD_SIZE", "2"},
                     {"OMPI_COMM_WORLD_RANK", "1"}}),
            "RANK is 0, but OMPI_COMM_WORLD_RANK is 1" + unset);
  EXPECT_EQ(
      refusal(
          {{"OMPI_COMM_WORLD_SIZE", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "1"}}),
      "OMPI_COMM_WORLD_SIZE is 1, but SLURM_STEP_NUM_TASKS is 2" + unset);
  EXPECT_EQ(
      refusal({{"WORLD_SIZE", "1"}, {"RANK", "0"}, {"LOCAL_WORLD_SIZE", "8"}, {"LOCAL_RANK", "3"}}),
      "LOCAL_WORLD_SIZE is 8, but WORLD_SIZE is 1" + unset);
  EXPECT_EQ(
      refusal({{"WORLD_SIZE", "4"}, {"RANK", "1"}, {"DS_COMM_URL", "self"}}),
      "DS_COMM_URL is 'self', a group of one process, but WORLD_SIZE is 4: unset one of them");
}

TEST(Environment, AGivenUrlAppliesUnderEveryLauncher) {
  expect_place(
      {{"OMPI_COMM_WORLD_SIZE", "3"}, {"OMPI_COMM_WORLD_RANK", "2"}, {"DS_COMM_URL", "tcp://a:9"}},
      2, 3, "tcp://a:9");
  Variables given = srun("2");
  given["DS_COMM_URL"] = "tcp://a:9";
  expect_place(given, 5, 8, "tcp://a:9");
  for (const char* word : {"shm:/x", "Garbage", "no_such_plugin"}) {
    setenv("DS_COMM_URL", word, 1);
    const std::string message = refusal_of([] { create_communicator("env", {}); });
    unsetenv("DS_COMM_URL");
    test::expect_names(message, {"DS_COMM_URL: comm url", word});
  }
}

// Draws the variables of every launcher. The oracle lists the contradictions of
// docs/reference/launch.md; exactly these must be refused, and the message must name both variables
// of one of them.
class Drawn {
 public:
  explicit Drawn(unsigned seed) : random_(seed) {
    draw_pair("RANK", "WORLD_SIZE");
    draw_pair("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
    draw_pair("PMI_RANK", "PMI_SIZE");
    draw_rare_pair("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE");
    draw_pair("SLURM_PROCID", "SLURM_STEP_NUM_TASKS");
    draw_rare_pair("FLUX_TASK_RANK", "FLUX_JOB_SIZE");
    draw("PMIX_RANK", {"0", "1", "3"}, 6);
    draw("LOCAL_WORLD_SIZE", {"1", "2", "4", "8"}, 4);
    draw("LOCAL_RANK", {"0", "1", "2", "-1", "-2"}, 3);
    draw("DS_COMM_URL", {"shm://x", "tcp://a:9", "self", "threads://x", "env", "env:tcp"}, 3);
    draw("TORCHELASTIC_RUN_ID", {"job"}, 6);
    draw("LOCAL_SIZE", {"1", "2"}, 8);
    variables_.insert({{"MASTER_ADDR", "a"},
                       {"MASTER_PORT", "9"},
                       {"SLURM_STEP_NUM_NODES", "1"},
                       {"FLUX_JOB_NNODES", "1"}});
  }
  const Variables& variables() const { return variables_; }
  bool has(const std::string& name) const { return variables_.count(name) > 0; }
  int value(const std::string& name) const { return std::stoi(variables_.at(name)); }

 private:
  unsigned next(size_t end) { return static_cast<unsigned>(random_() % end); }
  void draw(const std::string& name, const std::vector<std::string>& values, unsigned one_of) {
    if (next(one_of) == 0) variables_[name] = values[next(values.size())];
  }
  void draw_rare_pair(const std::string& rank, const std::string& size) {
    if (next(4) == 0) draw_pair(rank, size);
  }
  void draw_pair(const std::string& rank, const std::string& size) {
    if (next(2) == 0) return;
    const unsigned world = std::vector{1u, 1u, 2u, 2u, 3u, 4u}[next(6)];
    variables_[size] = std::to_string(world);
    variables_[rank] = std::to_string(next(world));
    const unsigned spoil = next(10);
    if (spoil == 0) variables_.erase(size);
    if (spoil == 1) variables_.erase(rank);
    if (spoil == 2) variables_[rank] = std::to_string(world + next(3));
    if (spoil == 3) variables_[size] = "0";
  }

  std::mt19937 random_;
  Variables variables_;
};

using Pairs = std::vector<std::pair<std::string, std::string>>;

// Returns the pairs of variables that cannot both describe one process. The second name may be "".
Pairs contradictions(const Drawn& v) {
  Pairs out;
  const std::string sizes[] = {"WORLD_SIZE",    "OMPI_COMM_WORLD_SIZE",
                               "PMI_SIZE",      "MV2_COMM_WORLD_SIZE",
                               "FLUX_JOB_SIZE", "SLURM_STEP_NUM_TASKS"},
                    ranks[] = {"RANK",           "OMPI_COMM_WORLD_RANK",
                               "PMI_RANK",       "MV2_COMM_WORLD_RANK",
                               "FLUX_TASK_RANK", "SLURM_PROCID"};
  int own = -1;
  for (int k = 5; k >= 0; --k) {
    if (!v.has(sizes[k])) continue;
    own = k;
    if (v.value(sizes[k]) < 1) out.emplace_back(sizes[k], "");
    if (v.has(ranks[k]) && v.value(ranks[k]) >= v.value(sizes[k]))
      out.emplace_back(ranks[k], sizes[k]);
  }
  const int size = own < 0 ? 1 : v.value(sizes[own]);
  const auto differ = [&](const std::string& a, const std::string& b) {
    if (v.has(a) && v.has(b) && v.value(a) != v.value(b)) out.emplace_back(a, b);
  };
  if (own >= 0 && size > 1 && !v.has(ranks[own])) out.emplace_back(ranks[own], "");
  const int mpi = v.has(sizes[1]) ? 1 : v.has(sizes[2]) ? 2 : v.has(sizes[3]) ? 3 : -1;
  for (int other = mpi + 1; mpi > 0 && other <= 3; ++other) {
    if (!v.has(sizes[other])) continue;
    differ(sizes[mpi], sizes[other]);
    differ(ranks[mpi], ranks[other]);
  }
  const int scheduler = v.has(sizes[4]) ? 4 : v.has(sizes[5]) ? 5 : -1;
  if (mpi > 0 && v.value(sizes[mpi]) == 1 && scheduler > 0 && v.value(sizes[scheduler]) > 1)
    out.emplace_back(sizes[mpi], sizes[scheduler]);
  const int around = mpi > 0 ? mpi : scheduler;
  if (own == 0 && around > 0 && v.value(sizes[around]) > 1 && !v.has("TORCHELASTIC_RUN_ID")) {
    if (size % v.value(sizes[around]) != 0) out.emplace_back(sizes[0], sizes[around]);
    if (size == v.value(sizes[around])) differ(ranks[0], ranks[around]);
  }
  for (const char* lone :
       {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "PMIX_RANK"}) {
    const auto at = std::find(std::begin(ranks), std::end(ranks), lone) - std::begin(ranks);
    if (own == 0 || !v.has(lone) || (at < 6 && v.has(sizes[at]))) continue;
    if (own < 0) out.emplace_back(lone, "");
    if (own > 0 && size > 1) differ(lone, ranks[own]);
    if (own > 0 && size == 1 && v.value(lone) != 0) out.emplace_back(lone, ranks[own]);
  }
  for (const char* local : {"LOCAL_WORLD_SIZE", "LOCAL_SIZE"}) {
    if (own == 0 && v.has(local)) {
      if (v.value(local) > size) out.emplace_back(local, "WORLD_SIZE");
      if (v.has("LOCAL_RANK") &&
          (v.value("LOCAL_RANK") >= v.value(local) || v.value("LOCAL_RANK") < 0))
        out.emplace_back("LOCAL_RANK", local);
    }
    if (own < 0 && v.has(local) && v.value(local) > 1) out.emplace_back(local, "WORLD_SIZE");
  }
  if (own < 0 && v.has("LOCAL_RANK") && v.value("LOCAL_RANK") > 0)
    out.emplace_back("LOCAL_RANK", "WORLD_SIZE");
  if (own == 0 && v.has("LOCAL_RANK") &&
      (v.value("LOCAL_RANK") >= size || v.value("LOCAL_RANK") < (size > 1 ? 0 : -1)))
    out.emplace_back("LOCAL_RANK", "WORLD_SIZE");
  const std::string url = v.has("DS_COMM_URL") ? v.variables().at("DS_COMM_URL") : "";
  if (url.starts_with("env")) out.emplace_back("DS_COMM_URL", "");
  if (size > 1 && (url == "self" || url == "threads://x"))
    out.emplace_back("DS_COMM_URL", sizes[own]);
  return out;
}

TEST(Environment, RandomVariablesGiveAPlaceOrANamedContradiction) {
  int accepted = 0, refused = 0;
  for (unsigned seed = 0; seed < 10'000; ++seed) {
    const Drawn drawn(seed);
    std::string text;
    for (const auto& [name, value] : drawn.variables()) text += name + "=" + value + " ";
    const std::string message = refusal(drawn.variables());
    const Pairs found = contradictions(drawn);
    if (found.empty()) {
      ++accepted;
      ASSERT_EQ(message, "accepted") << text;
      const Place place = place_of(drawn.variables());
      bool known = place.size == 1;
      for (const auto& [rank, size] : {std::pair{"RANK", "WORLD_SIZE"},
                                       {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                       {"PMI_RANK", "PMI_SIZE"},
                                       {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
                                       {"FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
                                       {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}}) {
        if (!drawn.has(size)) continue;
        known = known || (drawn.has(rank) && drawn.value(rank) == place.rank &&
                          drawn.value(size) == place.size);
        // A process that a launcher started as one of several never trains alone, unless each of
        // them has a job of torchrun or Flux.
        const bool job_in_each =
            drawn.has("TORCHELASTIC_RUN_ID") ||
            (size == std::string("SLURM_STEP_NUM_TASKS") && drawn.has("FLUX_JOB_SIZE"));
        ASSERT_TRUE(place.size > 1 || drawn.value(size) == 1 || job_in_each) << text;
      }
      ASSERT_TRUE(known) << text;
      if (place.size > 1 && drawn.has("DS_COMM_URL")) {
        ASSERT_EQ(place.url, drawn.variables().at("DS_COMM_URL")) << text;
      }
    } else {
      ++refused;
      ASSERT_TRUE(std::any_of(found.begin(), found.end(),
                              [&](const auto& pair) {
                                return message.find(pair.first) != std::string::npos &&
                                       message.find(pair.second) != std::string::npos;
                              }))
          << text << "\n"
          << message << "\n"
          << found[0].first << " " << found[0].second;
      ASSERT_EQ(message.find('\n'), std::string::npos);
    }
  }
  EXPECT_GT(accepted, 700);
  EXPECT_GT(refused, 2000);
}

TEST(Environment, RefusalsNameVariableAndValue) {
  EXPECT_EQ(refusal({{"WORLD_SIZE", "4"}}),
            "WORLD_SIZE is 4, but neither DS_COMM_URL nor MASTER_ADDR and MASTER_PORT are set: "
            "start the ranks with `libds launch -n 4`");
  EXPECT_EQ(refusal({{"WORLD_SIZE", "4"}, {"DS_COMM_URL", "shm://x"}}),
            "comm url 'env' needs the environment variable RANK, which is not set");
  EXPECT_EQ(refusal({{"WORLD_SIZE", "4"}, {"DS_COMM_URL", "shm://x"}, {"RANK", "one"}}),
            "RANK must be an integer, got 'one'");
  EXPECT_EQ(refusal({{"OMPI_COMM_WORLD_SIZE", "4 "}, {"OMPI_COMM_WORLD_RANK", "0"}}),
            "OMPI_COMM_WORLD_SIZE must be an integer, got '4 '");
}

}  // namespace
}  // namespace ds
