#include "comm/gloo/meeting_point.h"

#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "core/base/file_stream.h"

namespace ds {
namespace {

std::string own_host() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

const char* required_variable(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0')
    throw std::runtime_error(std::string("comm url 'gloo' without an address needs ") + name +
                             " in the environment, got none");
  return text;
}

int port_of(const std::string& text, const std::string& where) {
  int port = 0;
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (code != std::errc() || end != text.data() + text.size() || port < 1 || port > 65535)
    throw std::runtime_error(where + " must have a port of 1 to 65535, got '" + text + "'");
  return port;
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
    throw std::runtime_error("the address must be HOST:PORT, HOST:PORT/JOB or /PATH, got '" + address + "'");
  point.host = place.substr(0, colon);
  point.port = port_of(place.substr(colon + 1), "address '" + address + "'");
  return point;
}

std::string text_of(const MeetingPoint& point) {
  return point.file.empty() ? point.host + ":" + std::to_string(point.port) : point.file;
}

void publish(const MeetingPoint& point, int port) {
  if (point.file.empty()) return;
  std::string fresh = point.file + "." + std::to_string(getpid());
  OutputFile(fresh) << own_host() << ' ' << port << '\n';
  if (std::rename(fresh.c_str(), point.file.c_str()) == 0) return;
  std::remove(fresh.c_str());
  throw std::runtime_error("file '" + point.file + "' cannot be written");
}

void withdraw(const MeetingPoint& point) {
  if (!point.file.empty()) std::remove(point.file.c_str());
}

MeetingPoint looked_up(const MeetingPoint& point) {
  MeetingPoint found = point;
  if (point.file.empty()) return found;
  InputFile in(point.file);
  if (!(in >> found.host >> found.port)) found.port = 0;
  if (found.host == own_host()) found.host = "127.0.0.1";
  return found;
}

}  // namespace ds
