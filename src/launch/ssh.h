#pragma once
#include <string>
#include <vector>

namespace ds {

struct SshOptions {
  int port = 0;        // 0: what ssh's configuration says
  int connect_s = 10;  // until a host counts as unreachable
};

// The options of every ssh call: no questions, a time-out, the port.
std::vector<std::string> ssh_words(const SshOptions& options);

// Whether a name means this host: localhost, its own name, or an address of one of its interfaces.
bool is_this_host(const std::string& name);

// Logs in to all hosts at once and asks each for the programs. Throws std::invalid_argument with one line
// that names the first host, in order, that cannot be logged in to (with ssh's own words) or lacks a program.
void check_hosts(const std::vector<std::string>& hosts, const std::vector<std::string>& programs,
                 const SshOptions& options);

}  // namespace ds
