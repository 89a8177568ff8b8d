#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ds {

// A host and the numbers of its slots, one rank each. The order of hosts is the order of ranks: all
// of the first host come before those of the second.
struct Host {
  std::string name;
  std::vector<int> slots;
  bool operator==(const Host&) const = default;
};
using Hosts = std::vector<Host>;

inline constexpr int kMaxSlots = 4096;  // of one host

// The functions below follow DeepSpeed's launcher and refuse what it refuses, by
// std::invalid_argument of one line. They count ASCII blanks and digits only.

// Lines "HOST slots=N" (what follows N is not looked at), blank lines, lines that begin with '#'.
// Slots are 0 to N-1; N = 0 is a host without. `path` is for messages, which name the line.
Hosts parse_hostfile(std::string_view text, std::string_view path);

// The same of a file; nothing when there is none, where DeepSpeed runs on this host. Throws
// std::system_error when it cannot be read.
std::optional<Hosts> read_hostfile(const std::string& path);

// Hosts and slots by "HOST[:SLOT[,SLOT]...][@HOST...]", in the order of `hosts`: those that
// `include` names or those that `exclude` does not name (a host without slots means all of its
// slots, unless it is named with some, too); a host without a slot left is gone. "" says nothing;
// one of the two must be "".
Hosts filter_hosts(const Hosts& hosts, std::string_view include, std::string_view exclude);

// The first `host_count` hosts, with slots 0 to ranks_per_host-1 in place of their own, as
// DeepSpeed has it, even where a host has fewer. 0 and less leave either as it is.
Hosts trim_hosts(const Hosts& hosts, int host_count, int ranks_per_host);

int rank_count(const Hosts& hosts);

}  // namespace ds
