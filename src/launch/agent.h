#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launch/binding.h"
#include "launch/env_file.h"
#include "launch/hostfile.h"
#include "launch/job.h"
#include "launch/rank.h"

namespace ds {

// The options that the launcher of a job over several hosts passes to each of its agents.
struct AgentOptions {
  // The hosts of the job as "HOST:RANKS,...", in the order of ranks.
  std::string world;
  // The working folder of the command.
  std::string folder;
  std::string log_dir;
  int master_port = 29500;
  // Index of this host, for an agent of `--launcher ssh`, which runs all ranks of the host and
  // reads variables, then orders, from its standard input. -1: the agent was started by mpirun or
  // srun and runs the one rank whose number they have set.
  int host = -1;
  // The comm url over which the ranks send their data.
  std::string url = "mpi";
  Binding binding = Binding::none;
  // Times as in JobOptions. Their sum is shorter than the time that the launcher gives the agent to
  // end, and term_ms is shorter than the time that mpirun gives it after SIGTERM.
  int64_t grace_ms = 3000, term_ms = 1500;
};

// world_text() writes the hosts of a job as "HOST:RANKS,...", and parse_world() reads that form.
// parse_world() throws std::invalid_argument.
std::string world_text(const Hosts& hosts);
Hosts parse_world(std::string_view text);

// Returns the place of rank `rank` in a job over these hosts. Throws std::invalid_argument if the
// job has too few ranks.
RankPlace place_of_rank(const Hosts& hosts, int rank, int master_port,
                        const std::string& url = "mpi");

// packed() returns the variables as bytes to send to an agent of `--launcher ssh`, and
// read_packed() is the function with which the agent reads them. read_packed() throws
// std::invalid_argument if the stream ends too early.
std::string packed(const Variables& variables);
Variables read_packed(int fd);

// Runs the agent, which mpirun or srun starts once per rank and ssh once per host. The agent runs
// the command as the rank that the variables of mpirun or srun name, or as all ranks of its host.
// It reports failures, or a stop, to the launcher by records on stderr (a failure without a
// launcher by a line of text), and returns the code of the rank that failed first. After the record
// of a failure under mpirun or srun, it returns only when the starter ends the job, or after 6
// seconds, so that the launcher can read the record first. The ranks end when this process ends, or
// when the process that started it has ended.
int run_agent(const AgentOptions& options, const std::vector<std::string>& command);

}  // namespace ds
