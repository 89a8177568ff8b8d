#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ds {

// A host and the numbers of its slots. Each slot runs one rank. The order of hosts is the order of
// ranks: all ranks of the first host come before the ranks of the second.
struct Host {
  std::string name;
  std::vector<int> slots;
  bool operator==(const Host&) const = default;
};
using Hosts = std::vector<Host>;

// The largest number of slots of one host.
inline constexpr int kMaxSlots = 4096;

// The functions below follow DeepSpeed's launcher and reject the inputs that it rejects, with a
// one-line std::invalid_argument. They recognize only ASCII blanks and digits.

// Parses lines "HOST slots=N"; text after N is ignored, and so are blank lines and lines that begin
// with '#'. The slots are 0 to N-1; if N is 0, the host has no slots. `path` is used in messages,
// which name the line.
Hosts parse_hostfile(std::string_view text, std::string_view path);

// Reads and parses the file. Returns nullopt if it does not exist, in which case DeepSpeed runs the
// job on this host. Throws the errors of parse_hostfile() and read_small_file().
std::optional<Hosts> read_hostfile(const std::string& path);

// Selects the hosts and slots that `include` names, or those that `exclude` does not name, in the
// order of `hosts`. The form is "HOST[:SLOT[,SLOT]...][@HOST...]". A host that is named only
// without slots means all of its slots. A host without selected slots is dropped. At least one of
// `include` and `exclude` must be ""; if both are, returns `hosts`.
Hosts filter_hosts(const Hosts& hosts, std::string_view include, std::string_view exclude);

// Returns the first `host_count` hosts, with their slots replaced by 0 to ranks_per_host - 1, even
// if a host has fewer slots, as in DeepSpeed. If a number is 0 or less, hosts or slots stay as they
// are.
Hosts trim_hosts(const Hosts& hosts, int host_count, int ranks_per_host);

int rank_count(const Hosts& hosts);

}  // namespace ds
