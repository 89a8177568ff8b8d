#pragma once
#include <string>
#include <vector>

#include "launch/hostfile.h"

namespace ds {

// The functions below concern the Slurm job that this process is in. They use the variables of
// sbatch and salloc and Slurm's command-line programs.

// Returns whether this process is in a Slurm job.
bool in_slurm_job();

// Returns the id of the job, or "" outside of a job.
std::string slurm_job();

// Returns the job's hosts in Slurm's order, each with as many slots as it has tasks, or with one
// slot if the job was submitted without a number of tasks. Throws std::invalid_argument outside of
// a job, if Slurm does not answer, or if its variables do not fit each other.
Hosts slurm_hosts();

// Parses the value of SLURM_TASKS_PER_NODE: "2(x3),1" becomes 2, 2, 2, 1. Throws
// std::invalid_argument.
std::vector<int> parse_tasks_per_node(const std::string& text);

// Returns, for each host, "" or a line that names the host and says why the job can no longer use
// it. All lines are "" if Slurm does not answer. Throws std::invalid_argument if a program of Slurm
// cannot be run.
std::vector<std::string> slurm_troubles(const std::vector<std::string>& hosts);

// Returns how often the job has been restarted, by Slurm or by its launchers
// (note_slurm_restarts()).
int slurm_restarts();

// Writes the number of restarts to a file in the working folder, so that a launcher that Slurm
// starts when it requeues the job continues the count. Failing to write the file is not an error.
void note_slurm_restarts(int made);

// Removes the file that note_slurm_restarts() has written.
void forget_slurm_restarts();

// Asks Slurm to end the job and to start it again when hosts are available. Returns "" if Slurm
// will do so, otherwise the reason that it gives.
std::string slurm_requeue();

}  // namespace ds
