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

// What the launcher of a job over several hosts tells each of its agents.
struct AgentOptions {
  std::string world;   // "HOST:RANKS,..." in the order of ranks
  std::string folder;  // the command's working folder
  std::string log_dir;
  int master_port = 29500;
  // The agent is one of `--launcher ssh`: it runs all ranks of this host (-1: the one rank that
  // mpirun or srun has numbered); variables, then orders, come on its standard input.
  int host = -1;
  std::string url = "mpi";  // what carries the data
  Binding binding = Binding::none;
  // Together less than the launcher and the starter give the agent.
  int64_t grace_ms = 3000, term_ms = 1500;
};

// "HOST:RANKS,..." and back; the latter throws std::invalid_argument.
std::string world_text(const Hosts& hosts);
Hosts parse_world(std::string_view text);

// Rank `rank` of a job over these hosts. Throws std::invalid_argument when there is no such rank.
RankPlace place_of_rank(const Hosts& hosts, int rank, int master_port,
                        const std::string& url = "mpi");

// The variables as they are handed to an agent of `--launcher ssh`, and what reads them. Throws
// std::invalid_argument when there are none.
std::string packed(const Variables& variables);
Variables read_packed(int fd);

// What mpirun or srun runs once per rank, ssh once per host: runs the command as the rank that
// their variables name, as the ranks of that host, and tells the launcher of the first failure, by
// a record on stderr (a line when there is no launcher). Returns the rank's code, after a record
// under mpirun and srun only when their job ends or after 6 seconds, so that the record is read
// before. The rank ends when this process does, or when the process that started it is gone.
int run_agent(const AgentOptions& options, const std::vector<std::string>& command);

}  // namespace ds
