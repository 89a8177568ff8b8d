#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace ds {

// A key, a random draw or a message authentication code (HMAC-SHA-256).
using Bytes32 = std::array<unsigned char, 32>;

// 32 bytes of the kernel's random number generator.
Bytes32 drawn();

// HMAC-SHA-256 of purpose and data under the key. The purpose separates domains: it says what the
// result is for, and no two uses share one. It ends at its first zero byte.
Bytes32 derived(const Bytes32& key, std::string_view purpose, std::string_view data);

// Compares in a time that does not depend on where the two differ.
bool same(const Bytes32& a, const Bytes32& b);

inline std::string_view view_of(const Bytes32& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string hex_of(const Bytes32& bytes);

// What a rank proves to others and wants proved.
struct Trust {
  Bytes32 key{};
  bool same_user =
      false;  // the other end must also be a socket of this user on this host: the key is no secret
};

// What the ranks of a job share and strangers do not have.
struct JobKey {
  enum class Kind {
    missing,  // nothing is set: ranks of one host may meet over the loopback
    none,     // DS_JOB_KEY=none: whoever reaches the ports may join, as this user has decided
    given
  };
  Kind kind = Kind::missing;
  Bytes32 key{};
};

// The key of any text that has at least kLeastKeyText characters.
constexpr size_t kLeastKeyText = 16;
Bytes32 key_of_text(std::string_view text);

// DS_JOB_KEY of the environment, else the file that DS_JOB_KEY_FILE names. Throws
// std::runtime_error without the key's text: too short, or a file that others may read.
JobKey job_key();

// The content of a small regular file that belongs to this user and that nobody else may read or
// write. Neither follows a link nor waits for a FIFO. Empty, with the reason in `reason`, for any
// other.
constexpr const char* kNoFile = "no such file yet";
std::optional<std::string> read_private_file(const std::string& path, std::string& reason);

}  // namespace ds
