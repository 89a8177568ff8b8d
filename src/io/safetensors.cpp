// Reads and plans the headers of safetensors files.
//
// Problem. A file may come from an untrusted source, so its header may be damaged or hostile: huge
// lengths, offsets outside of the file, tensors that overlap, products of extents that overflow.
// Invariant. After read_header() the tensors tile the data of the file exactly, in the order of
// entries, so later reads need no further checks.
// Source. The specification in the README of github.com/huggingface/safetensors.
#include "io/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <unordered_set>

#include "core/base/contains.h"
#include "core/base/content_kind.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "io/file.h"
#include "io/file_kind.h"

namespace ds {
namespace {

static_assert(std::endian::native == std::endian::little);
// Size of the largest header, in bytes, which has room for some 100,000 tensors.
constexpr int64_t max_header = int64_t{16} << 20;
constexpr std::string_view metadata_key = "__metadata__";

constexpr std::array<std::pair<DType, std::string_view>, 7> dtypes{{{DS_DTYPE_F32, "F32"},
                                                                    {DS_DTYPE_BF16, "BF16"},
                                                                    {DS_DTYPE_F16, "F16"},
                                                                    {DS_DTYPE_F64, "F64"},
                                                                    {DS_DTYPE_I32, "I32"},
                                                                    {DS_DTYPE_I64, "I64"},
                                                                    {DS_DTYPE_U8, "U8"}}};
// Element types of the format that libds cannot read. It can write some of them (written_dtypes).
constexpr std::array<std::string_view, 11> other_dtypes{
    "I8", "I16", "U16", "U32", "U64", "F4", "F8_E4M3", "F8_E5M2", "F8_E8M0", "C64", "F6_E2M3"};

constexpr const char* kCutOff =
    ": the end of the file is missing, so its download or copy was cut off: get it again";

// Element types that libds can write although it has no such dtype, with their sizes in bytes. When
// a file is read, BOOL becomes u8, and I8, I16 and C64 are refused.
constexpr std::array<std::pair<std::string_view, int64_t>, 4> written_dtypes{
    {{"BOOL", 1}, {"I8", 1}, {"I16", 2}, {"C64", 8}}};

std::string_view format_name(DType dtype) {
  for (const auto& [known, name] : dtypes) {
    if (known == dtype) return name;
  }
  raise(DS_ERROR_INVALID_ARGUMENT, "dtype of a safetensors entry must be a ds_dtype, got {}",
        static_cast<int>(dtype));
}

DType element_type(const std::string& name, const std::string& tensor) {
  for (const auto& [dtype, known] : dtypes) {
    if (known == name) return dtype;
  }
  if (name == "BOOL") return DS_DTYPE_U8;
  if (contains(other_dtypes, name)) {
    raise(DS_ERROR_UNSUPPORTED, "tensor '{}' has dtype {}, which libds does not have",
          TensorName(tensor), name);
  }
  raise(DS_ERROR_CORRUPT, "tensor '{}' has unknown dtype '{}'", TensorName(tensor), name);
}

int64_t element_bytes(const SafetensorEntry& entry) {
  if (entry.type.empty()) return size_of(entry.dtype);
  for (const auto& [name, bytes] : written_dtypes) {
    if (name == entry.type) return bytes;
  }
  raise(DS_ERROR_INVALID_ARGUMENT,
        "type of a safetensors entry must be BOOL, I8, I16 or C64, got '{}'", entry.type);
}

// Returns the size of a tensor in bytes. Throws if it overflows int64 or an extent is negative.
int64_t byte_count(const SafetensorEntry& entry, ds_status status) {
  int64_t bytes = element_bytes(entry);
  for (int64_t extent : entry.shape) {
    if (extent < 0)
      raise(status, "tensor '{}' has a negative dimension {}", TensorName(entry.name), extent);
    if (__builtin_mul_overflow(bytes, extent, &bytes)) {
      raise(status, "tensor '{}' has more than 2^63 bytes", TensorName(entry.name));
    }
  }
  return bytes;
}

// Parses the entry of one tensor. `data_begin` is the file offset of the first data byte, and
// `data_bytes` the number of bytes from there to the end of the file.
SafetensorEntry read_entry(const std::string& name, const Json& value, int64_t data_begin,
                           int64_t data_bytes) {
  SafetensorEntry entry;
  entry.name = name;
  entry.dtype = element_type(value.at("dtype").string(), name);
  for (const Json& extent : value.at("shape").array()) entry.shape.push_back(extent.integer());
  const Json::Array& offsets = value.at("data_offsets").array();
  if (offsets.size() != 2) {
    raise(DS_ERROR_CORRUPT, "tensor '{}' must have 2 data_offsets, got {}", TensorName(name),
          offsets.size());
  }
  int64_t begin = offsets[0].integer();
  int64_t end = offsets[1].integer();
  if (begin < 0 || end < begin) {
    raise(DS_ERROR_CORRUPT,
          "tensor '{}' has data_offsets [{}, {}], which must be ascending and not negative",
          TensorName(name), begin, end);
  }
  if (end > data_bytes) {
    raise(DS_ERROR_CORRUPT, "tensor '{}' has data_offsets [{}, {}] in {} data bytes{}",
          TensorName(name), begin, end, data_bytes, kCutOff);
  }
  int64_t bytes = byte_count(entry, DS_ERROR_CORRUPT);
  if (bytes != end - begin) {
    raise(DS_ERROR_CORRUPT, "tensor '{}' has {} bytes by its shape, but {} by data_offsets",
          TensorName(name), bytes, end - begin);
  }
  entry.begin = data_begin + begin;
  entry.bytes = bytes;
  return entry;
}

// Throws unless each tensor begins where the previous one ends and the last one ends with the file.
// The entries are sorted by `begin`.
void check_coverage(const SafetensorHeader& header, int64_t data_begin) {
  int64_t at = data_begin;
  for (const auto& entry : header.entries) {
    if (entry.begin != at) {
      raise(DS_ERROR_CORRUPT, "tensor '{}' begins at byte {}, but the data before it ends at {}",
            TensorName(entry.name), entry.begin, at);
    }
    at += entry.bytes;
  }
  if (at != header.file_bytes) {
    raise(DS_ERROR_CORRUPT, "tensors end at byte {}, but the file has {} bytes", at,
          header.file_bytes);
  }
}

SafetensorHeader read_header(const File& file) {
  SafetensorHeader header;
  header.file_bytes = file.size();
  if (header.file_bytes < 8) {
    raise(DS_ERROR_CORRUPT, "a safetensors file has at least 8 bytes, got {}{}", header.file_bytes,
          kCutOff);
  }
  uint64_t length = 0;
  file.read(&length, 8, 0);
  auto limit = static_cast<uint64_t>(std::min(header.file_bytes - 8, max_header));
  if (length > limit) {
    raise(DS_ERROR_CORRUPT, "header has {} bytes, but at most {} are possible{}", length, limit,
          length <= static_cast<uint64_t>(max_header) ? kCutOff : "");
  }
  std::string text(static_cast<size_t>(length), '\0');
  file.read(text.data(), text.size(), 8);
  int64_t data_begin = 8 + static_cast<int64_t>(length);
  const Json document = Json::parse(text, "header");
  for (const auto& [name, value] : document.object()) {
    if (name == metadata_key) {
      for (const auto& [key, item] : value.object())
        header.metadata.emplace_back(key, item.string());
    } else {
      header.entries.push_back(read_entry(name, value, data_begin, header.file_bytes - data_begin));
    }
  }
  std::ranges::stable_sort(header.entries, [](const auto& a, const auto& b) {
    // An empty tensor sorts before a non-empty one that begins at the same byte.
    return std::pair(a.begin, a.bytes) < std::pair(b.begin, b.bytes);
  });
  check_coverage(header, data_begin);
  return header;
}

}  // namespace

const SafetensorEntry* SafetensorHeader::find(std::string_view name) const {
  for (const auto& entry : entries) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

SafetensorHeader read_safetensors_header(const std::string& path) {
  File file(path, File::Mode::read);
  try {
    return read_header(file);
  } catch (const Error& error) {
    raise_fault(path, error, Wanted::safetensors);
  }
}

std::string plan_safetensors(std::vector<SafetensorEntry>& entries,
                             const std::vector<std::pair<std::string, std::string>>& metadata) {
  Json::Object document;
  if (!metadata.empty()) {
    Json texts;
    for (const auto& [key, text] : metadata) texts.set(key, text);
    document.emplace_back(metadata_key, std::move(texts));
  }
  std::unordered_set<std::string_view> names{metadata_key};
  int64_t at = 0;
  for (auto& entry : entries) {
    require(names.insert(entry.name).second, "tensor name '{}' is already used", entry.name);
    entry.bytes = byte_count(entry, DS_ERROR_INVALID_ARGUMENT);
    entry.begin = at;
    at += entry.bytes;
    document.emplace_back(
        entry.name, Json::Object{{"dtype", std::string(entry.type.empty() ? format_name(entry.dtype)
                                                                          : entry.type)},
                                 {"shape", Json::Array(entry.shape.begin(), entry.shape.end())},
                                 {"data_offsets", Json::Array{entry.begin, at}}});
  }
  std::string text = Json(std::move(document)).dump();
  while ((8 + text.size()) % 64 != 0) text += ' ';
  require(text.size() <= size_t{max_header},
          "the header of {} tensors has {} bytes, but at most {} are possible", entries.size(),
          text.size(), max_header);
  for (auto& entry : entries) entry.begin += 8 + static_cast<int64_t>(text.size());
  uint64_t length = text.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + text;
}

}  // namespace ds
