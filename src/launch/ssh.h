#pragma once
#include <string>
#include <vector>

namespace ds {

struct SshOptions {
  int port = 0;        // 0: what ssh's configuration says
  int connect_s = 10;  // until a host counts as unreachable
};

// The options of every ssh call: no questions, a time-out, the port; a host that cannot be reached
// any more is given up after half a minute.
std::vector<std::string> ssh_words(const SshOptions& options);

// Whether a name means this host: localhost, its own name, or an address of one of its interfaces.
bool is_this_host(const std::string& name);

// Logs in to all hosts at once and asks each for the programs. Returns for each host "", or one
// line that names it and says that it cannot be logged in to (with ssh's own words) or lacks a
// program. Throws std::invalid_argument where there is no ssh.
std::vector<std::string> host_troubles(const std::vector<std::string>& hosts,
                                       const std::vector<std::string>& programs,
                                       const SshOptions& options);

}  // namespace ds
