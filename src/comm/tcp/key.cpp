#include "comm/tcp/key.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "core/base/descriptor.h"

namespace ds {
namespace {

static_assert(sizeof(Bytes32) == crypto_auth_hmacsha256_BYTES);

constexpr size_t kMostFile = 4096;

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

std::string system_text() { return std::strerror(errno); }

// Returns why an open file is not a private file, or "".
std::string wrong_with(int fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return system_text();
  if (!S_ISREG(status.st_mode)) return "it is not a regular file";
  if (status.st_uid != geteuid())
    return "it belongs to user " + std::to_string(status.st_uid) + ", not to this user " +
           std::to_string(geteuid());
  if ((status.st_mode & 077) != 0) {
    char mode[8];
    std::snprintf(mode, sizeof mode, "0%o", static_cast<unsigned>(status.st_mode & 0777));
    return std::string("others may open it: its mode is ") + mode + ", must be 0600";
  }
  if (status.st_size > static_cast<off_t>(kMostFile))
    return "it has " + std::to_string(status.st_size) + " bytes; at most " +
           std::to_string(kMostFile) + " are allowed";
  return "";
}

std::string_view without_blanks(std::string_view text) {
  constexpr const char* kBlanks = " \t\r\n";
  size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

// Returns the key that is derived from a text. If the text is too short, the error names its
// source, but does not quote it.
Bytes32 key_given(std::string_view text, const std::string& where) {
  if (text.size() < kLeastKeyText)
    throw std::runtime_error(where + " must have at least " + std::to_string(kLeastKeyText) +
                             " characters, got " + std::to_string(text.size()) +
                             ": `openssl rand -hex 32` makes a good one");
  return key_of_text(text);
}

}  // namespace

// The loop is needed because getrandom() may return fewer bytes than requested, or be interrupted
// by a signal.
Bytes32 drawn() {
  Bytes32 bytes;
  for (size_t at = 0; at < bytes.size();) {
    ssize_t got = getrandom(bytes.data() + at, bytes.size() - at, 0);
    if (got < 0 && errno != EINTR) throw std::runtime_error("getrandom: " + system_text());
    if (got > 0) at += static_cast<size_t>(got);
  }
  return bytes;
}

Bytes32 derived(const Bytes32& key, std::string_view purpose, std::string_view data) {
  // sodium_init() chooses the fastest implementation for this processor.
  static const int ready = sodium_init();
  if (ready < 0) throw std::runtime_error("libsodium cannot be used on this system");
  constexpr unsigned char kEnd = 0;
  Bytes32 out;
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, key.data(), key.size());
  crypto_auth_hmacsha256_update(&state, bytes_of(purpose), purpose.size());
  crypto_auth_hmacsha256_update(&state, &kEnd, 1);
  crypto_auth_hmacsha256_update(&state, bytes_of(data), data.size());
  crypto_auth_hmacsha256_final(&state, out.data());
  return out;
}

bool same(const Bytes32& a, const Bytes32& b) {
  return sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string hex_of(const Bytes32& bytes) {
  std::string text(2 * bytes.size() + 1, '\0');
  sodium_bin2hex(text.data(), text.size(), bytes.data(), bytes.size());
  text.pop_back();
  return text;
}

Bytes32 key_of_text(std::string_view text) { return derived({}, "libds job key", text); }

std::optional<std::string> read_private_file(const std::string& path, std::string& reason) {
  // The checks use the open descriptor, so that nobody can replace the file between the check and
  // the read.
  int fd =
      above_standard(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (fd < 0) {
    reason = errno == ELOOP ? "it is a link" : errno == ENOENT ? kNoFile : system_text();
    return std::nullopt;
  }
  reason = wrong_with(fd);
  std::string text(kMostFile, '\0');
  ssize_t got = reason.empty() ? read(fd, text.data(), text.size()) : 0;
  if (got < 0) reason = system_text();
  close(fd);
  if (!reason.empty()) return std::nullopt;
  text.resize(static_cast<size_t>(got));
  return text;
}

JobKey job_key() {
  const char* text = std::getenv("DS_JOB_KEY");
  if (text != nullptr && *text != '\0') {
    if (std::string_view(text) == "none") return {JobKey::Kind::none, key_of_text("none")};
    return {JobKey::Kind::given, key_given(text, "DS_JOB_KEY")};
  }
  const char* path = std::getenv("DS_JOB_KEY_FILE");
  if (path == nullptr || *path == '\0') return {JobKey::Kind::missing, key_of_text("missing")};
  std::string name = std::string("DS_JOB_KEY_FILE '") + path + "'", reason;
  std::optional<std::string> content = read_private_file(path, reason);
  if (!content) throw std::runtime_error(name + " cannot be used: " + reason);
  return {JobKey::Kind::given, key_given(without_blanks(*content), name)};
}

}  // namespace ds
