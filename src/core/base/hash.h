#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace ds {

// A streaming xxh3-128 hash. The digest does not depend on how the input is divided into updates.
class Hash128 {
 public:
  Hash128();
  ~Hash128();
  Hash128(const Hash128&) = delete;
  Hash128& operator=(const Hash128&) = delete;
  void update(const void* data, size_t size);
  void update(std::string_view text) { update(text.data(), text.size()); }
  // Returns the hash of everything fed so far as 32 lower-case hexadecimal digits.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string hash_hex(std::string_view bytes);
uint64_t hash64(std::string_view bytes);

}  // namespace ds
