#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace ds {

// A key, a nonce or a message authentication code (HMAC-SHA-256).
using Bytes32 = std::array<unsigned char, 32>;

// Returns 32 bytes from the kernel's random number generator.
Bytes32 drawn();

// Returns the HMAC-SHA-256, under the key, of `purpose`, a zero byte and `data`. The purpose
// separates domains: every use of a key has a different purpose, which contains no zero byte.
Bytes32 derived(const Bytes32& key, std::string_view purpose, std::string_view data);

// Compares two values in a time that does not depend on where they differ.
bool same(const Bytes32& a, const Bytes32& b);

inline std::string_view view_of(const Bytes32& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string hex_of(const Bytes32& bytes);

// The key that a rank proves to other ranks and that they must prove to it.
struct Trust {
  Bytes32 key{};
  // Whether the other end must also be a socket of this user on this host, because the key is not a
  // secret.
  bool same_user = false;
};

// The key that the ranks of a job share and that strangers do not have.
struct JobKey {
  enum class Kind {
    // No key is set: only ranks of this user can connect, over the loopback of one host or through
    // a private file.
    missing,
    // DS_JOB_KEY=none: the user allows everyone who can connect to the ports to join.
    none,
    // DS_JOB_KEY or DS_JOB_KEY_FILE gives the key.
    given
  };
  Kind kind = Kind::missing;
  Bytes32 key{};
};

// Returns the key that is derived from a text. job_key() refuses texts of fewer than kLeastKeyText
// characters, except "none".
constexpr size_t kLeastKeyText = 16;
Bytes32 key_of_text(std::string_view text);

// Returns the key from DS_JOB_KEY or, if that is not set, from the file that DS_JOB_KEY_FILE names.
// Throws std::runtime_error if the text is too short or read_private_file() refuses the file; the
// message does not contain the text of the key.
JobKey job_key();

// Returns the content of a small regular file that belongs to this user and that no other user may
// access. Does not follow symbolic links or wait for a FIFO. Returns nullopt, with the reason in
// `reason`, for any other file. The reason is kNoFile if the file does not exist.
constexpr const char* kNoFile = "no such file yet";
std::optional<std::string> read_private_file(const std::string& path, std::string& reason);

}  // namespace ds
