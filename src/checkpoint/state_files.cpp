#include "checkpoint/state_files.h"

#include <algorithm>
#include <cstdint>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "io/safetensors.h"

namespace ds {

StateFiles::StateFiles(const std::string& path) : path_(path), manifest_(read_manifest(path)) {}

std::string StateFiles::file_path(size_t kind) const {
  return path_ + "/" + state_file(manifest_.kinds[kind]);
}

void StateFiles::open(size_t kinds) {
  for (size_t k = files_.size(); k < kinds; ++k) {
    headers_.push_back(read_state_header(manifest_, path_, k));
    files_.emplace_back(file_path(k), File::Mode::read);
  }
}

void StateFiles::read(size_t kind, const std::string& tensor, int64_t begin, int64_t count,
                      const Block& block) {
  const SafetensorEntry& entry = *headers_[kind].find(tensor);
  for (int64_t at = begin; at < begin + count;) {
    auto n = std::min(static_cast<size_t>(begin + count - at), block_.size());
    files_[kind].read(block_.data(), n * sizeof(float), entry.begin + at * int64_t{sizeof(float)});
    block(std::span(block_).first(n));
    at += static_cast<int64_t>(n);
  }
}

void StateFiles::read_piece(const Piece& piece, const Block& block) {
  auto kind = static_cast<size_t>(piece.kind);
  const std::string& name = manifest_.tensors[static_cast<size_t>(piece.tensor)].name;
  Hash128 hash;
  read(kind, name, piece.begin, piece.count, [&](std::span<const float> values) {
    hash.update(values.data(), values.size_bytes());
    if (block) block(values);
  });
  std::string expected(piece.hash.data(), piece.hash.size()), found = hash.hex();
  if (expected == found) return;
  raise(DS_ERROR_CORRUPT, "tensor '{}' in '{}': elements {} to {} have hash {}, {} says {}", name,
        file_path(kind), piece.begin, piece.begin + piece.count - 1, found, kManifestName, expected);
}

}  // namespace ds
