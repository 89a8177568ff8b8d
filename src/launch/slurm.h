#pragma once
#include <string>
#include <vector>

#include "launch/hostfile.h"

namespace ds {

// What Slurm says of the job that this process is in: variables of sbatch and salloc, and Slurm's
// own programs.

// Whether this process is in a job of Slurm.
bool in_slurm_job();

// The number of that job; "": there is none.
std::string slurm_job();

// The job's hosts in Slurm's order, each with as many slots as it has tasks, or one where the job
// was made without a number of tasks. Throws std::invalid_argument where there is no job or Slurm
// does not answer.
Hosts slurm_hosts();

// The numbers that SLURM_TASKS_PER_NODE means: "2(x3),1" is 2 2 2 1. Throws std::invalid_argument.
std::vector<int> parse_tasks_per_node(const std::string& text);

// For each host "", or one line that names it and says why the job cannot use it any more. Where
// Slurm does not answer nothing is said.
std::vector<std::string> slurm_troubles(const std::vector<std::string>& hosts);

// How often Slurm has started the job again.
int slurm_requeues();

// Has Slurm end the job and start it again when there are hosts for it. Returns "" when it will,
// else its reason.
std::string slurm_requeue();

}  // namespace ds
