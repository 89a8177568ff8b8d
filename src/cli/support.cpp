#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "cli/commands.h"

namespace ds::cli {

void check(ds_status status) {
  if (status == DS_OK) return;
  bool alone = status == DS_ERROR_COMM || status == DS_ERROR_IO || status == DS_ERROR_INTERNAL ||
               status == DS_ERROR_OUT_OF_MEMORY || status == DS_ERROR_POISONED;
  throw Failure(ds_last_error_message(), !alone);
}

std::string text_of(const std::function<ds_status(char*, size_t, size_t*)>& call) {
  size_t size = 0;
  check(call(nullptr, 0, &size));
  std::string text(size, '\0');
  check(call(text.data(), text.size(), &size));
  text.resize(size > 0 ? size - 1 : 0);
  return text;
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  if (file) text << file.rdbuf();
  if (!file || text.fail()) throw Failure(fmt::format("'{}': {}", path, std::strerror(errno)), true);
  return text.str();
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

Comm join() {
  ds_comm* comm = nullptr;
  check(ds_comm_create("env", nullptr, &comm));
  return Comm(comm);
}

}  // namespace ds::cli
