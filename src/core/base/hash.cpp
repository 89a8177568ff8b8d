#include "core/base/hash.h"

#include <fmt/core.h>
#include <xxhash.h>

namespace ds {

struct Hash128::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

Hash128::Hash128() : state_(std::make_unique<State>()) { XXH3_128bits_reset(state_->xxh); }
Hash128::~Hash128() = default;

void Hash128::update(const void* data, size_t size) {
  XXH3_128bits_update(state_->xxh, data, size);
}

std::string Hash128::hex() const {
  XXH128_hash_t h = XXH3_128bits_digest(state_->xxh);
  return fmt::format("{:016x}{:016x}", h.high64, h.low64);
}

// xxh3 detects accidental damage and changes. It is not a cryptographic hash.
std::string hash_hex(std::string_view bytes) {
  Hash128 h;
  h.update(bytes);
  return h.hex();
}

uint64_t hash64(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace ds
