#include "launch/ssh.h"

#include <fmt/core.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "launch/capture.h"
#include "launch/strings.h"

namespace ds {
namespace {

constexpr int kProgramMissing = 3;

// Returns the bytes of an IPv4 or IPv6 address without the port, or "" for other families.
std::string address_bytes(const sockaddr* address) {
  if (address == nullptr) return "";
  if (address->sa_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
    return std::string(reinterpret_cast<const char*>(&in), sizeof in);
  }
  if (address->sa_family == AF_INET6) {
    const auto& in = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    return std::string(reinterpret_cast<const char*>(&in), sizeof in);
  }
  return "";
}

bool is_own_address(const sockaddr* address) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return false;
  std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  std::string wanted = address_bytes(address);
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (!wanted.empty() && address_bytes(one->ifa_addr) == wanted) return true;
  }
  return false;
}

// Starts a check of one host. All checks run at the same time; finish() waits for each.
Capture start_check(const std::string& host, const std::string& script, const SshOptions& options) {
  std::vector<std::string> words = {"ssh"};
  for (std::string& word : ssh_words(options)) words.push_back(std::move(word));
  words.insert(words.end(), {host, script});
  return {words, "hosts are reached by ssh"};
}

// Returns what a check found wrong with the host, as a message, or "".
std::string trouble_of(const std::string& host, const Capture& check) {
  std::string output = last_line(check.text);
  if (check.code == kProgramMissing)
    return fmt::format("host '{}' has no program '{}'", host, output);
  if (check.code == 0) return "";
  return fmt::format("cannot log in to host '{}' by ssh: {}", host,
                     output.empty() ? fmt::format("code {}", check.code) : output);
}

}  // namespace

std::vector<std::string> ssh_words(const SshOptions& options) {
  std::vector<std::string> words = {"-o", "BatchMode=yes", "-o",
                                    fmt::format("ConnectTimeout={}", options.connect_s)};
  if (options.port != 0) words.insert(words.end(), {"-p", std::to_string(options.port)});
  words.insert(words.end(), {"-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=2"});
  return words;
}

bool is_this_host(const std::string& name) {
  char own[256] = "";
  gethostname(own, sizeof own - 1);
  if (name == "localhost" || name == own) return true;
  addrinfo* list = nullptr;
  if (getaddrinfo(name.c_str(), nullptr, nullptr, &list) != 0) return false;
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    if (is_own_address(one->ai_addr)) return true;
  }
  return false;
}

std::vector<std::string> host_troubles(const std::vector<std::string>& hosts,
                                       const std::vector<std::string>& programs,
                                       const SshOptions& options) {
  std::string script;
  for (const std::string& program : programs) {
    // The host's shell looks up each program. The script prints the first one that is missing and
    // ends.
    script += fmt::format("command -v {0} >/dev/null || {{ echo {0}; exit {1}; }}; ",
                          shell_word(program), kProgramMissing);
  }
  std::vector<Capture> checks;
  for (const std::string& host : hosts)
    checks.push_back(start_check(host, script + "exit 0", options));
  std::vector<std::string> troubles;
  for (size_t i = 0; i < hosts.size(); ++i) {
    checks[i].finish();
    troubles.push_back(trouble_of(hosts[i], checks[i]));
  }
  return troubles;
}

}  // namespace ds
