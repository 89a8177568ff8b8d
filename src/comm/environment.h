#pragma once
#include <functional>
#include <string>

namespace ds {

// A rank's place in the group that its launcher's environment describes.
struct Place {
  int rank = 0;
  int size = 1;
  std::string url = "self";
};

// The value of a variable, or nullptr.
using Lookup = std::function<const char*(const char* name)>;

// The first that applies:
//   WORLD_SIZE, RANK and DS_COMM_URL: `libds launch`
//   WORLD_SIZE, RANK and LOCAL_WORLD_SIZE: torchrun; on one host a name over shared memory made of
//   its run id,
//     port and count of restarts, on several url tcp at its master's address
//   WORLD_SIZE, RANK, MASTER_ADDR and MASTER_PORT: any launcher of torch's kind; url tcp
//   OMPI_COMM_WORLD_SIZE, or PMI_SIZE of MPICH, Intel MPI and srun --mpi=pmi2: url mpi
//   SLURM_STEP_NUM_TASKS: url mpi under srun --mpi=pmix, else, on one host, a name over shared
//   memory none, or a size of 1: one rank
// Throws Error naming the variable and its value.
Place place_of_environment(const Lookup& variable);

}  // namespace ds
