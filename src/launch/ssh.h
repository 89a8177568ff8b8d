#pragma once
#include <string>
#include <vector>

namespace ds {

struct SshOptions {
  // The port; 0: the port in ssh's configuration.
  int port = 0;
  // Time-out for connecting, in seconds.
  int connect_s = 10;
};

// Returns the options for every ssh call: no prompts, a time-out for connecting, the port. A
// connection to a host that can no longer be reached is given up after half a minute.
std::vector<std::string> ssh_words(const SshOptions& options);

// Returns whether a name refers to this host: it is localhost, the host's name, or resolves to an
// address of one of the host's interfaces.
bool is_this_host(const std::string& name);

// Logs in to all hosts at once and looks for the programs on each. Returns, for each host, "" or a
// line that names the host and says that ssh cannot log in (with ssh's message) or that a program
// is missing. Throws std::invalid_argument if ssh cannot be run.
std::vector<std::string> host_troubles(const std::vector<std::string>& hosts,
                                       const std::vector<std::string>& programs,
                                       const SshOptions& options);

}  // namespace ds
