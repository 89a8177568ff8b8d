#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"

namespace ds {

// One tensor of a safetensors file. The file consists of an 8-byte little-endian header length, a
// JSON header, and the data.
struct SafetensorEntry {
  std::string name;
  DType dtype = DS_DTYPE_NONE;
  std::vector<int64_t> shape;
  // Offset of the first data byte in the file.
  int64_t begin = 0;
  int64_t bytes = 0;
  // Name of the element type in the file format if libds has no such dtype (BOOL, I8, I16, C64).
  // Such tensors can only be written, and their dtype is DS_DTYPE_NONE.
  std::string_view type = {};
};

// The header of a safetensors file.
struct SafetensorHeader {
  // The tensors, in the order of their data or, in a torch file, of the state dict.
  std::vector<SafetensorEntry> entries;
  std::vector<std::pair<std::string, std::string>> metadata;
  int64_t file_bytes = 0;
  // Returns the tensor of that name, or null.
  const SafetensorEntry* find(std::string_view name) const;
};

// Reads and checks a header: its length is within the file and at most 16 MiB (headers of published
// models have some MB, and a header of 100 MB of tiny tensors would need gigabytes of memory),
// dtypes are known, sizes match the shapes, every data byte belongs to exactly one tensor, and
// names are unique.
// Throws DS_ERROR_CORRUPT naming path and tensor, or DS_ERROR_UNSUPPORTED for an element type of
// the format that libds does not have (BOOL is read as u8). Apart from the header itself, allocates
// nothing based on a size that the file declares.
SafetensorHeader read_safetensors_header(const std::string& path);

// Lays out tensors, given by name, dtype and shape, in this order and without gaps; data starts at
// a multiple of 64. Returns the header bytes to write at offset 0, and sets `begin` and `bytes` of
// the entries.
std::string plan_safetensors(std::vector<SafetensorEntry>& entries,
                             const std::vector<std::pair<std::string, std::string>>& metadata);

}  // namespace ds
