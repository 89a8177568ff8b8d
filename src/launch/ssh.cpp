#include "launch/ssh.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "launch/rank.h"
#include "launch/strings.h"

namespace ds {
namespace {

constexpr int kSshFailed = 255;
constexpr int kProgramMissing = 3;

// The address's bytes, without port; "" of other families.
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

// A program's end and what it wrote to its standard error.
struct Check {
  pid_t pid = 0;
  int errors = -1;
  int code = 0;
  std::string text;
};

Check start_check(const std::string& host, const std::string& script, const SshOptions& options) {
  std::vector<std::string> words = {"ssh"};
  for (std::string& word : ssh_words(options)) words.push_back(std::move(word));
  words.insert(words.end(), {host, script});
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  StartOptions start{.output = ends[1], .errors = ends[1]};
  sigemptyset(&start.mask);
  Started started = start_process(words, {}, start);
  close(ends[1]);
  if (started.error != 0) {
    close(ends[0]);
    throw std::invalid_argument(
        fmt::format("hosts are reached by ssh, which cannot be run: {}", std::strerror(started.error)));
  }
  return {started.pid, ends[0], 0, ""};
}

void finish(Check& check) {
  char part[4096];
  for (ssize_t got = 1; got > 0 || (got < 0 && errno == EINTR);) {
    got = read(check.errors, part, sizeof part);
    if (got > 0) check.text.append(part, static_cast<size_t>(got));
  }
  close(check.errors);
  int status = 0;
  while (waitpid(check.pid, &status, 0) < 0 && errno == EINTR) continue;
  check.code = WIFEXITED(status) ? WEXITSTATUS(status) : kSshFailed;
}

// The last line that is not blank.
std::string last_line(const std::string& text) {
  std::string last;
  for (std::string_view line : split(text, '\n')) {
    if (!trimmed(line).empty()) last = trimmed(line);
  }
  return last;
}

}  // namespace

std::vector<std::string> ssh_words(const SshOptions& options) {
  std::vector<std::string> words = {"-o", "BatchMode=yes", "-o",
                                    fmt::format("ConnectTimeout={}", options.connect_s)};
  if (options.port != 0) words.insert(words.end(), {"-p", std::to_string(options.port)});
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

void check_hosts(const std::vector<std::string>& hosts, const std::vector<std::string>& programs,
                 const SshOptions& options) {
  std::string script;
  for (const std::string& program : programs) {
    script += fmt::format("command -v {0} >/dev/null || {{ echo {0}; exit {1}; }}; ", shell_word(program),
                          kProgramMissing);
  }
  std::vector<Check> checks;
  for (const std::string& host : hosts) checks.push_back(start_check(host, script + "exit 0", options));
  for (Check& check : checks) finish(check);
  for (size_t i = 0; i < hosts.size(); ++i) {
    std::string output = last_line(checks[i].text);
    if (checks[i].code == kProgramMissing)
      throw std::invalid_argument(fmt::format("host '{}' has no program '{}'", hosts[i], output));
    if (checks[i].code != 0) {
      throw std::invalid_argument(
          fmt::format("host '{}' cannot be logged in to by ssh: {}", hosts[i],
                      output.empty() ? fmt::format("code {}", checks[i].code) : output));
    }
  }
}

}  // namespace ds
