#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"

namespace ds {

// One tensor of a safetensors file (format: 8-byte little-endian header length, JSON header, then
// data).
struct SafetensorEntry {
  std::string name;
  DType dtype = DS_DTYPE_NONE;
  std::vector<int64_t> shape;
  int64_t begin = 0;  // byte offset in the file of the first data byte
  int64_t bytes = 0;
  // The format's name of the element type where it is none of libds (BOOL, I8, I16, C64): such
  // tensors are only written. Their dtype is none.
  std::string_view type = {};
};

struct SafetensorHeader {
  std::vector<SafetensorEntry> entries;  // in file order
  std::vector<std::pair<std::string, std::string>> metadata;
  int64_t file_bytes = 0;
  const SafetensorEntry* find(std::string_view name) const;
};

// Reads and checks a header: length within the file and at most 16 MiB (published models have some
// MB, and 100 MB of tiny tensors would take gigabytes to read), known dtypes, bytes == shape, every
// data byte in exactly one tensor, no duplicate name. Throws DS_ERROR_CORRUPT naming path and
// tensor, or DS_ERROR_UNSUPPORTED for an element type of the format that libds does not have (BOOL
// is read as u8); allocates nothing of declared size beyond the header itself.
SafetensorHeader read_safetensors_header(const std::string& path);

// Lays out tensors (name, dtype, shape) in the given order without gaps; data starts at a multiple
// of 64. Returns the header bytes to write at offset 0; entries get begin and bytes.
std::string plan_safetensors(std::vector<SafetensorEntry>& entries,
                             const std::vector<std::pair<std::string, std::string>>& metadata);

}  // namespace ds
