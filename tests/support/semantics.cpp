#include "support/semantics.h"

#include <cstdlib>
#include <cstring>

#include "core/base/error.h"
#include "core/base/half.h"
#include "io/file.h"

namespace ds::test {

namespace {

std::string in_folder(const char* variable, const char* otherwise, const std::string& file) {
  const char* folder = std::getenv(variable);
  return (folder && *folder ? std::string(folder) : std::string(DS_SOURCE_DIR) + otherwise) + "/" +
         file;
}

}  // namespace

std::string semantics_path(const std::string& file) {
  return in_folder("DS_SEMANTICS", "/tests/data/semantics", file);
}

std::string data_path(const std::string& file) {
  return in_folder("DS_TEST_DATA", "/tests/data", file);
}

std::vector<std::byte> RecordedTensors::bytes_of(const std::string& name, DType& dtype) const {
  const SafetensorEntry* entry = header_.find(name);
  require(entry, "no tensor '{}' in {}", name, path_);
  std::vector<std::byte> bytes(static_cast<size_t>(entry->bytes));
  File(path_, File::Mode::read).read(bytes.data(), bytes.size(), entry->begin);
  dtype = entry->dtype;
  return bytes;
}

std::vector<std::string> RecordedTensors::names() const {
  std::vector<std::string> out;
  for (const SafetensorEntry& entry : header_.entries) out.push_back(entry.name);
  return out;
}

std::vector<float> RecordedTensors::read(const std::string& name) const {
  DType dtype = DS_DTYPE_NONE;
  const std::vector<std::byte> bytes = bytes_of(name, dtype);
  std::vector<float> out(bytes.size() / static_cast<size_t>(size_of(dtype)));
  widen(dtype, bytes.data(), static_cast<int64_t>(out.size()), out.data());
  return out;
}

namespace {

template <typename T>
std::vector<double> as_doubles(const std::vector<std::byte>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return {values.begin(), values.end()};
}

}  // namespace

std::vector<double> RecordedTensors::numbers(const std::string& name) const {
  DType dtype = DS_DTYPE_NONE;
  const std::vector<std::byte> bytes = bytes_of(name, dtype);
  if (dtype == DS_DTYPE_F64) return as_doubles<double>(bytes);
  if (dtype == DS_DTYPE_I32) return as_doubles<int32_t>(bytes);
  require(dtype == DS_DTYPE_F32, "tensor '{}' of {} is {}", name, path_, dtype_name(dtype));
  return as_doubles<float>(bytes);
}

}  // namespace ds::test
