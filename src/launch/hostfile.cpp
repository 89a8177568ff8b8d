#include "launch/hostfile.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "launch/strings.h"

namespace ds {
namespace {

template <typename... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) {
  throw std::invalid_argument(fmt::format(text, std::forward<Args>(args)...));
}

// Returns the slots 0 to count - 1.
std::vector<int> first_slots(int count) {
  std::vector<int> slots(static_cast<size_t>(count));
  std::iota(slots.begin(), slots.end(), 0);
  return slots;
}

Hosts::iterator find(Hosts& hosts, std::string_view name) {
  return std::find_if(hosts.begin(), hosts.end(),
                      [&](const Host& host) { return host.name == name; });
}

// Parses one line of a hostfile; error messages begin with `where`.
Host parse_entry(std::string_view line, const std::string& where) {
  constexpr std::string_view kKey = "slots=";
  size_t end = std::min(line.find_first_of(kBlanks), line.size());
  std::string_view rest = trimmed(line.substr(end));
  int count = -1;
  if (rest.substr(0, kKey.size()) == kKey) {
    rest.remove_prefix(kKey.size());
    size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
    auto [last, code] = std::from_chars(rest.data(), rest.data() + digits, count);
    if (code == std::errc::result_out_of_range || (code == std::errc{} && count > kMaxSlots))
      refuse("{}: slots must be 0 to {}, got {}", where, kMaxSlots, rest.substr(0, digits));
    if (code != std::errc{}) count = -1;
  }
  if (count < 0) refuse("{}: must be 'HOST slots=N', got '{}'", where, line);
  return {std::string(line.substr(0, end)), first_slots(count)};
}

// One element of --include or --exclude. An element without slots means the whole host.
struct Choice {
  size_t host = 0;
  std::vector<int> slots;
};

// Parses one element. The host must be in the hostfile and must have the slots.
Choice parse_choice(std::string_view text, const Hosts& hosts, std::string_view option) {
  std::vector<std::string_view> parts = split(text, ':');
  if (parts.size() > 2) refuse("{}: must be HOST or HOST:SLOT,..., got '{}'", option, text);
  auto host =
      std::find_if(hosts.begin(), hosts.end(), [&](const Host& h) { return h.name == parts[0]; });
  if (host == hosts.end()) refuse("{}: host '{}' is not in the hostfile", option, parts[0]);
  Choice choice{static_cast<size_t>(host - hosts.begin()), {}};
  if (parts.size() == 1) return choice;
  for (std::string_view word : split(parts[1], ',')) {
    int slot = 0;
    auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), slot);
    if (code != std::errc{} || end != word.data() + word.size())
      refuse("{}: a slot of host '{}' must be a number, got '{}'", option, host->name, word);
    if (std::find(host->slots.begin(), host->slots.end(), slot) == host->slots.end())
      refuse("{}: host '{}' has no slot {}; it has {} slots", option, host->name, slot,
             host->slots.size());
    choice.slots.push_back(slot);
  }
  return choice;
}

// Returns the slots of `from` that are in `list`, if `keep` is true, or those that are not.
std::vector<int> chosen(const std::vector<int>& from, const std::vector<int>& list, bool keep) {
  std::vector<int> out;
  for (int slot : from) {
    if ((std::find(list.begin(), list.end(), slot) != list.end()) == keep) out.push_back(slot);
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

Hosts parse_hostfile(std::string_view text, std::string_view path) {
  Hosts hosts;
  // The line number of each host in the file.
  std::vector<size_t> lines;
  size_t number = 0;
  // The UTF-8 byte order mark, which some editors write.
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  for (std::string_view full : split(text, '\n')) {
    ++number;
    std::string_view line = trimmed(full);
    if (line.empty() || line.front() == '#') continue;
    Host host = parse_entry(line, fmt::format("hostfile '{}', line {}", path, number));
    if (auto other = find(hosts, host.name); other != hosts.end()) {
      refuse("hostfile '{}', line {}: host '{}' is in line {}, too", path, number, host.name,
             lines[static_cast<size_t>(other - hosts.begin())]);
    }
    hosts.push_back(std::move(host));
    lines.push_back(number);
  }
  if (hosts.empty()) refuse("hostfile '{}': must have a line 'HOST slots=N', has none", path);
  return hosts;
}

std::optional<Hosts> read_hostfile(const std::string& path) {
  std::optional<std::string> text = read_small_file(path, "hostfile");
  if (!text) return std::nullopt;
  return parse_hostfile(*text, path);
}

Hosts filter_hosts(const Hosts& hosts, std::string_view include, std::string_view exclude) {
  if (!include.empty() && !exclude.empty())
    refuse("--include and --exclude cannot be given together, got '{}' and '{}'", include, exclude);
  if (include.empty() && exclude.empty()) return hosts;
  bool keep = !include.empty();
  std::vector<std::vector<int>> named(hosts.size());
  std::vector<bool> whole(hosts.size());
  for (std::string_view part : split(keep ? include : exclude, '@')) {
    Choice choice = parse_choice(part, hosts, keep ? "--include" : "--exclude");
    std::vector<int>& list = named[choice.host];
    list.insert(list.end(), choice.slots.begin(), choice.slots.end());
    if (choice.slots.empty()) whole[choice.host] = true;
  }
  Hosts out;
  for (size_t h = 0; h < hosts.size(); ++h) {
    // As in DeepSpeed, an element without slots is ignored if another element names slots of the
    // same host.
    if (whole[h] && named[h].empty()) named[h] = hosts[h].slots;
    std::vector<int> slots = chosen(hosts[h].slots, named[h], keep);
    if (!slots.empty()) out.push_back({hosts[h].name, std::move(slots)});
  }
  return out;
}

Hosts trim_hosts(const Hosts& hosts, int host_count, int ranks_per_host) {
  Hosts out = hosts;
  if (host_count > 0) out.resize(std::min(out.size(), static_cast<size_t>(host_count)));
  if (ranks_per_host > 0) {
    for (Host& host : out) host.slots = first_slots(ranks_per_host);
  }
  return out;
}

int rank_count(const Hosts& hosts) {
  return std::accumulate(hosts.begin(), hosts.end(), 0, [](int sum, const Host& host) {
    return sum + static_cast<int>(host.slots.size());
  });
}

}  // namespace ds
