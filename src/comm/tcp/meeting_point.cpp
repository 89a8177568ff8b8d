#include "comm/tcp/meeting_point.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <vector>

#include "comm/tcp/wire.h"
#include "core/base/ascii.h"
#include "core/base/descriptor.h"

namespace ds {
namespace {

constexpr const char* kLoopback = "127.0.0.1";
constexpr const char* kNoKey = "-";

std::string own_host() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

const char* required_variable(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0')
    throw std::runtime_error(std::string("comm url 'tcp' without an address needs the variable ") +
                             name + ", which is not set");
  return text;
}

int port_of(const std::string& text, const std::string& where) {
  int port = 0;
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (code != std::errc() || end != text.data() + text.size() || port < 1 || port > 65535)
    throw std::runtime_error(where + " must have a port of 1 to 65535, got '" + text + "'");
  return port;
}

// Returns a loopback address for `host`, which must be this host. All ranks of the host get the
// same address.
std::string loopback_of(const std::string& host) {
  for (const std::string& address : addresses_of(host)) {
    if (is_loopback(address)) return address;
    if (is_local(address)) return kLoopback;
  }
  throw std::runtime_error(
      "host '" + host +
      "' is not this host: ranks on several hosts need a key. Set DS_JOB_KEY (or "
      "DS_JOB_KEY_FILE) to the same secret on all ranks, or DS_JOB_KEY=none to let everyone "
      "join who reaches the ports");
}

// Returns an address of this host, named `host`, that other hosts can reach: the first address of
// the name that is local but not a loopback address (on Debian, a host may resolve its own name to
// 127.0.1.1), otherwise the address of the chosen interface, otherwise everywhere().
std::string outer_address(const std::string& host) {
  try {
    for (const std::string& address : addresses_of(host)) {
      if (!is_loopback(address) && is_local(address)) return address;
    }
  } catch (const std::runtime_error&) {
    // This host cannot resolve the name.
  }
  std::string interface = chosen_interface();
  return interface.empty() ? everywhere() : address_of_interface(interface);
}

bool is_address(const std::string& host) {
  unsigned char address[sizeof(in6_addr)];
  return inet_pton(AF_INET, host.c_str(), address) == 1 ||
         inet_pton(AF_INET6, host.c_str(), address) == 1;
}

}  // namespace

MeetingPoint parse_meeting_point(const std::string& address) {
  MeetingPoint point;
  if (address.empty()) {
    point.host = required_variable("MASTER_ADDR");
    point.port = port_of(required_variable("MASTER_PORT"), "MASTER_PORT");
    return point;
  }
  if (address[0] == '/') {
    point.file = address;
    return point;
  }
  size_t slash = address.find('/');
  std::string place = address.substr(0, slash);
  if (slash != std::string::npos) point.job = address.substr(slash + 1);
  size_t colon = place.rfind(':');
  if (colon == std::string::npos || colon == 0)
    throw std::runtime_error("the address must be HOST:PORT, HOST:PORT/JOB or /PATH, got '" +
                             address + "'");
  point.host = place.substr(0, colon);
  if (point.host.size() > 2 && point.host.front() == '[' && point.host.back() == ']')
    point.host = point.host.substr(1, point.host.size() - 2);
  point.port = port_of(place.substr(colon + 1), "address '" + address + "'");
  return point;
}

std::string text_of(const MeetingPoint& point) {
  return point.file.empty() ? place_text(point.host, point.port) : point.file;
}

std::string elsewhere(const MeetingPoint& point) {
  if (!point.file.empty()) return "";
  std::string list;
  try {
    for (const std::string& address : addresses_of(point.host)) {
      if (is_local(address)) return "";
      if (address != point.host) list += (list.empty() ? " (" : ", ") + address;
    }
  } catch (const UnknownHost&) {
    return "";
  }
  return "; rank 0 runs on this host, but '" + point.host + "'" + list + (list.empty() ? "" : ")") +
         " is not one of its addresses: start rank 0 on that host";
}

std::string listening_address(const MeetingPoint& point, JobKey::Kind key) {
  if (!point.file.empty()) {
    std::string interface = chosen_interface();
    return interface.empty() ? outer_address(own_host()) : address_of_interface(interface);
  }
  if (key == JobKey::Kind::missing) return loopback_of(point.host);
  // If torchrun runs its own store, MASTER_ADDR is the host of the store, and rank 0 may run on
  // another host.
  if (const char* store = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
      store && std::string(store) == "True") {
    if (const std::string reason = elsewhere(point); !reason.empty())
      throw std::runtime_error("the ranks cannot meet" + reason +
                               ", as torchrun --node-rank 0 --rdzv-backend static does");
  }
  if (point.host == "localhost") return kLoopback;
  if (is_address(point.host) && is_local(point.host)) return point.host;
  return outer_address(point.host);
}

// The file appears with its whole content, by a rename, and only this user can open it. The
// destructor compares device and inode to find out whether the file has been replaced.
Publication::Publication(const MeetingPoint& point, const std::string& address, int port,
                         const std::optional<std::string>& key_text)
    : file_(point.file) {
  if (file_.empty()) return;
  std::string fresh = file_ + "." + hex_of(drawn()).substr(0, 16);
  std::string text = (address == everywhere() ? own_host() : address) + " " + std::to_string(port) +
                     " " + key_text.value_or(kNoKey) + "\n";
  int fd = above_standard(
      open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  struct stat status {};
  bool written = fd >= 0 && fchmod(fd, 0600) == 0 && fstat(fd, &status) == 0 &&
                 write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  int code = errno;
  if (fd >= 0) close(fd);
  if (written && std::rename(fresh.c_str(), file_.c_str()) == 0) {
    device_ = status.st_dev;
    inode_ = status.st_ino;
    return;
  }
  if (written) code = errno;
  if (fd >= 0) std::remove(fresh.c_str());
  throw std::runtime_error("file '" + file_ + "' cannot be written: " + std::strerror(code));
}

Publication::~Publication() {
  struct stat now {};
  if (!file_.empty() && lstat(file_.c_str(), &now) == 0 && now.st_dev == device_ &&
      now.st_ino == inode_)
    std::remove(file_.c_str());
}

std::string chosen_interface() {
  const char* name = std::getenv("GLOO_SOCKET_IFNAME");
  return name != nullptr ? name : "";
}

// Exactly one of the file and this rank's environment must have a key, because the file has a fresh
// key only if rank 0's environment has none. Otherwise one of the two ranks is misconfigured, and
// the file is not used.
std::optional<Reach> reach_of(const MeetingPoint& point, const JobKey& key, std::string& reason) {
  if (point.file.empty()) {
    if (key.kind == JobKey::Kind::missing)
      return Reach{{loopback_of(point.host)}, point.port, {key.key, true}};
    return Reach{addresses_of(point.host), point.port, {key.key}};
  }
  std::optional<std::string> text = read_private_file(point.file, reason);
  if (!text) return std::nullopt;
  const std::vector<std::string_view> words = ascii_words(*text);
  Reach reach{{}, 0, {key.key}};
  if (words.size() >= 3) reach.port = ascii_number<int>(words[1]).value_or(0);
  if (reach.port < 1 || reach.port > 65535) {
    reason = "it does not say HOST PORT KEY";
    return std::nullopt;
  }
  const std::string host(words[0]), key_text(words[2]);
  if ((key_text == kNoKey) == (key.kind == JobKey::Kind::missing)) {
    reason = key_text == kNoKey ? "rank 0 has a DS_JOB_KEY, but this rank does not"
                                : "this rank has a DS_JOB_KEY, but rank 0 does not";
    return std::nullopt;
  }
  if (key_text != kNoKey) reach.trust.key = key_of_text(key_text);
  reach.addresses = host == own_host() ? std::vector<std::string>{kLoopback} : addresses_of(host);
  return reach;
}

}  // namespace ds
