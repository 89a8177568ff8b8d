#pragma once
#include <functional>
#include <string>

namespace ds {

// A rank's place in the group that the environment variables of its launcher describe.
struct Place {
  int rank = 0;
  int size = 1;
  std::string url = "self";
};

// Returns the value of a variable, or nullptr if it is not set.
using Lookup = std::function<const char*(const char* name)>;

// Returns this process's place according to the first of these that is set
// (docs/reference/launch.md has the table of variables):
// - WORLD_SIZE and RANK: `libds launch`, torchrun, and other launchers that set torch's variables;
// - OMPI_COMM_WORLD_SIZE of Open MPI, PMI_SIZE of MPICH, Intel MPI and srun --mpi=pmi2, or
//   MV2_COMM_WORLD_SIZE of MVAPICH;
// - FLUX_JOB_SIZE of flux run;
// - SLURM_STEP_NUM_TASKS of srun.
// If none is set, or if the size is 1, the group has one rank. The url of several ranks is
// DS_COMM_URL if that is set. Otherwise it depends on the launcher:
// - torchrun on one host: a name over shared memory, built from its run id, port and number of
//   restarts;
// - torchrun on several hosts, and other launchers that set torch's variables: tcp at MASTER_ADDR
//   and MASTER_PORT, or at the next port if torchrun's own store listens there;
// - MPI, and srun --mpi=pmix: mpi;
// - srun and flux run on one host: a name over shared memory.
//
// Variables that contradict each other are refused, because each process might otherwise train
// alone. They do not contradict each other if one launcher started another: a launcher of torch's
// kind may have as many ranks as MPI or the scheduler started processes, or a multiple of that
// number, and MPI may have any number of processes under a scheduler, but not one process under
// several tasks. DS_OUTER_LAUNCHERS has the variables, as NAME=VALUE words, with which `libds
// launch` itself was started; they are ignored. Throws an Error that names the variables and their
// values.
Place place_of_environment(const Lookup& variable);

}  // namespace ds
