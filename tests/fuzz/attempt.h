#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "heap.h"
#include "io/file.h"
#include "support/dice.h"

namespace ds::test {

inline void expect_good_message(const Error& error) {
  std::string text = error.what();
  EXPECT_NE(error.status(), DS_ERROR_INTERNAL) << text;
  EXPECT_NE(text, "");
  EXPECT_LE(text.size(), kMostMessage);
  EXPECT_TRUE(is_utf8(text)) << text;
  for (char c : text) {
    if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) continue;
    ADD_FAILURE() << "character " << int{c} << " in: " << text;
    break;
  }
}

// Returns how many of `all` random inputs to try: a fifth under a sanitizer, where each takes ten
// times as long, unless DS_LONG is set (./run test --long).
inline uint32_t draws(uint32_t all) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  if (!std::getenv("DS_LONG")) return all / 5;
#endif
  return all;
}

// Returns the random draws of input i. They differ between rounds (DS_FUZZ_ROUND, set by ./run
// attack fuzz).
inline Dice dice_of(uint64_t seed, uint32_t i) {
  static const char* const given = std::getenv("DS_FUZZ_ROUND");
  const uint64_t round = given ? std::strtoull(given, nullptr, 10) : 0;
  return Dice(seed + (round << 16), i);
}

// A counter of attempts to read damaged input, and of their results. Each attempt must return a
// value or throw a well-formed ds::Error, and must hold at most `limit` bytes at any time.
class Attempts {
 public:
  explicit Attempts(size_t limit = size_t{4} << 20) : limit_(limit) {}

  // Returns true if `body` returns a value, or false if it throws.
  bool run(const std::function<void()>& body) {
    HeapPeak heap;
    bool good = ends_well(body);
    EXPECT_LE(heap.bytes(), limit_);
    ++(good ? loaded : refused);
    return good;
  }

  int loaded = 0, refused = 0;

 private:
  static bool ends_well(const std::function<void()>& body) {
    try {
      body();
      return true;
    } catch (const Error& error) {
      expect_good_message(error);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "no ds::Error: " << error.what();
    }
    return false;
  }

  size_t limit_;
};

// Writes a file without O_TRUNC, because ext4 flushes a file to disk at close if it was truncated
// and written again.
inline void put_file(const std::string& path, std::string_view bytes) {
  File file(path, File::Mode::write);
  file.write(bytes.data(), bytes.size(), 0);
  file.resize(static_cast<int64_t>(bytes.size()));
}

inline std::string get_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw std::runtime_error("cannot read " + path);
  return bytes;
}

}  // namespace ds::test
