#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace ds {

// Streaming xxh3-128.
class Hash128 {
 public:
  Hash128();
  ~Hash128();
  Hash128(const Hash128&) = delete;
  Hash128& operator=(const Hash128&) = delete;
  void update(const void* data, size_t size);
  void update(std::string_view text) { update(text.data(), text.size()); }
  std::string hex() const;  // 32 lower-case digits of everything fed so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string hash_hex(std::string_view bytes);
uint64_t hash64(std::string_view bytes);

}  // namespace ds
