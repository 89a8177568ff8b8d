#include "checkpoint/state_files.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>

#include "checkpoint/pieces.h"
#include "core/base/error.h"
#include "core/base/hash.h"
#include "io/safetensors.h"

namespace ds {
namespace {

// The header of the file of one kind, which must hold exactly the manifest's tensors: size, header hash,
// names, shapes. DS_ERROR_CORRUPT naming path and both values.
SafetensorHeader read_state_header(const Manifest& manifest, const std::string& path, size_t kind) {
  const ManifestFile& listed = manifest.files.at(kind);
  std::string name = path + "/" + state_file(manifest.kinds[kind]);
  check_state_file(manifest, path, kind);
  File file(name, File::Mode::read);
  SafetensorHeader header = read_safetensors_header(name);
  if (header.entries.size() != manifest.tensors.size()) {
    raise(DS_ERROR_CORRUPT, "'{}' holds {} tensors, {} says {}", name, header.entries.size(), kManifestName,
          manifest.tensors.size());
  }
  int64_t begin = listed.bytes;
  for (const SafetensorEntry& e : header.entries) begin = std::min(begin, e.begin);
  std::string bytes(static_cast<size_t>(begin), '\0');
  file.read(bytes.data(), bytes.size(), 0);
  if (hash_hex(bytes) != listed.header) {
    raise(DS_ERROR_CORRUPT, "the header of '{}' has hash {}, {} says {}", name, hash_hex(bytes),
          kManifestName, listed.header);
  }
  for (const ManifestTensor& t : manifest.tensors) {
    const SafetensorEntry* e = header.find(t.name);
    if (!e || e->dtype != DS_DTYPE_F32 || e->shape != t.shape) {
      raise(DS_ERROR_CORRUPT, "'{}': tensor '{}' is absent, or has another type or shape than {} says", name,
            TensorName(t.name), kManifestName);
    }
  }
  return header;
}

}  // namespace

void check_state_file(const Manifest& manifest, const std::string& path, size_t kind) {
  const ManifestFile& listed = manifest.files.at(kind);
  std::string name = path + "/" + state_file(manifest.kinds[kind]);
  if (!exists(name)) raise(DS_ERROR_CORRUPT, "'{}' does not exist, {} names it", name, kManifestName);
  int64_t size = File(name, File::Mode::read).size();
  if (size == listed.bytes) return;
  raise(DS_ERROR_CORRUPT, "'{}' has {} bytes, {} says {}", name, size, kManifestName, listed.bytes);
}

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
  for (int64_t row = 0; row < piece.rows; ++row) {
    read(kind, name, piece.begin + row * piece.stride, piece.count, [&](std::span<const float> values) {
      hash.update(values.data(), values.size_bytes());
      if (block) block(values);
    });
  }
  std::string expected(piece.hash.data(), piece.hash.size()), found = hash.hex();
  if (expected == found) return;
  int64_t last = piece.begin + (piece.rows - 1) * piece.stride + piece.count - 1;
  std::string rows = piece.rows == 1 ? "" : fmt::format(" ({} rows of {})", piece.rows, piece.count);
  raise(DS_ERROR_CORRUPT, "tensor '{}' in '{}': elements {} to {}{} have hash {}, {} says {}",
        TensorName(name), file_path(kind), piece.begin, last, rows, found, kManifestName, expected);
}

}  // namespace ds
