#include "comm/environment.h"

#include <gtest/gtest.h>

#include <map>

#include "core/base/error.h"

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

std::string refusal(const Variables& variables) {
  try {
    place_of(variables);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Environment, NoLauncherIsOneRank) {
  expect_place({}, 0, 1, "self");
  expect_place({{"WORLD_SIZE", "1"}, {"RANK", "0"}, {"DS_COMM_URL", "shm://x"}}, 0, 1, "self");
  expect_place({{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}}, 0, 1, "self");
  // A batch script of Slurm: the job has tasks, but this process is not one of them.
  expect_place({{"SLURM_JOB_ID", "5"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}, 0, 1, "self");
}

TEST(Environment, LibdsLaunch) {
  expect_place({{"WORLD_SIZE", "4"}, {"RANK", "3"}, {"DS_COMM_URL", "shm://x"}}, 3, 4, "shm://x");
  // Its own word counts where mpirun or srun started it.
  expect_place({{"WORLD_SIZE", "4"},
                {"RANK", "3"},
                {"DS_COMM_URL", "shm://x"},
                {"OMPI_COMM_WORLD_SIZE", "2"}},
               3, 4, "shm://x");
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

TEST(Environment, Torchrun) {
  expect_place(torchrun("4"), 1, 4, "shm://torchrun-40001-2-0a1b");
  Variables long_id = torchrun("4");
  long_id["TORCHELASTIC_RUN_ID"] = std::string(200, 'r');
  EXPECT_LE(place_of(long_id).url.size(), 80u);
  expect_place(torchrun("2"), 1, 4, "tcp://127.0.0.1:40001/torchrun-2-0a1b");
  Variables own_store = torchrun("2");
  own_store["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  expect_place(own_store, 1, 4, "tcp://127.0.0.1:40002/torchrun-2-0a1b");
  own_store.erase("MASTER_ADDR");
  EXPECT_EQ(refusal(own_store), "comm url 'env' needs MASTER_ADDR in the environment, got none");
  expect_place({{"WORLD_SIZE", "4"}, {"RANK", "1"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "9"}}, 1,
               4, "tcp://a:9");
}

TEST(Environment, Mpi) {
  expect_place({{"OMPI_COMM_WORLD_SIZE", "3"}, {"OMPI_COMM_WORLD_RANK", "2"}}, 2, 3, "mpi");
  expect_place({{"PMI_SIZE", "3"}, {"PMI_RANK", "1"}}, 1, 3, "mpi");
}

Variables srun(const char* hosts) {
  return {{"SLURM_JOB_ID", "77"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_PROCID", "5"},
          {"SLURM_STEP_NUM_TASKS", "8"},
          {"SLURM_STEP_NUM_NODES", hosts}};
}

TEST(Environment, Slurm) {
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

TEST(Environment, WithoutTextIsNotSet) {
  expect_place({{"WORLD_SIZE", ""}, {"RANK", ""}}, 0, 1, "self");
  expect_place({{"WORLD_SIZE", ""}, {"OMPI_COMM_WORLD_SIZE", "3"}, {"OMPI_COMM_WORLD_RANK", "2"}},
               2, 3, "mpi");
  EXPECT_EQ(refusal({{"WORLD_SIZE", "4"}, {"DS_COMM_URL", "shm://x"}, {"RANK", ""}}),
            "comm url 'env' needs RANK in the environment, got none");
}

// `WORLD_SIZE=1 RANK=0 mpirun -n 2 libds train` would be two runs of one rank.
TEST(Environment, AWorldSizeThatWasLeftBehind) {
  EXPECT_EQ(refusal({{"WORLD_SIZE", "1"}, {"RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}}),
            "WORLD_SIZE is 1, but mpirun started 2 processes (OMPI_COMM_WORLD_SIZE): unset "
            "WORLD_SIZE and RANK to "
            "train on all of them, or unset OMPI_COMM_WORLD_SIZE to train in each");
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
  // Launchers that set WORLD_SIZE themselves are the innermost ones.
  expect_place({{"WORLD_SIZE", "1"}, {"DS_COMM_URL", "self"}, {"OMPI_COMM_WORLD_SIZE", "2"}}, 0, 1,
               "self");
  expect_place({{"WORLD_SIZE", "1"}, {"TORCHELASTIC_RUN_ID", "x"}, {"SLURM_STEP_NUM_TASKS", "2"}},
               0, 1, "self");
}

TEST(Environment, RefusalsNameVariableAndValue) {
  EXPECT_EQ(refusal({{"WORLD_SIZE", "4"}}),
            "WORLD_SIZE is 4, but neither DS_COMM_URL nor MASTER_ADDR and MASTER_PORT are set: "
            "start the ranks "
            "with `libds launch -n 4`");
  EXPECT_EQ(refusal({{"WORLD_SIZE", "4"}, {"DS_COMM_URL", "shm://x"}}),
            "comm url 'env' needs RANK in the environment, got none");
  EXPECT_EQ(refusal({{"WORLD_SIZE", "4"}, {"DS_COMM_URL", "shm://x"}, {"RANK", "one"}}),
            "RANK must be an integer, got 'one'");
  EXPECT_EQ(refusal({{"OMPI_COMM_WORLD_SIZE", "4 "}, {"OMPI_COMM_WORLD_RANK", "0"}}),
            "OMPI_COMM_WORLD_SIZE must be an integer, got '4 '");
}

}  // namespace
}  // namespace ds
