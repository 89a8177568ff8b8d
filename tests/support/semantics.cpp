#include "support/semantics.h"

#include <cstdlib>

#include "core/base/error.h"
#include "core/base/half.h"
#include "io/file.h"

namespace ds::test {

std::string semantics_path(const std::string& file) {
  const char* folder = std::getenv("DS_SEMANTICS");
  return (folder && *folder ? folder : std::string(DS_SOURCE_DIR) + "/tests/data/semantics") + "/" + file;
}

std::vector<float> RecordedTensors::read(const std::string& name) const {
  const SafetensorEntry* entry = header_.find(name);
  require(entry, "no tensor '{}' in {}", name, path_);
  std::vector<std::byte> bytes(static_cast<size_t>(entry->bytes));
  File(path_, File::Mode::read).read(bytes.data(), bytes.size(), entry->begin);
  std::vector<float> out(bytes.size() / static_cast<size_t>(size_of(entry->dtype)));
  widen(entry->dtype, bytes.data(), static_cast<int64_t>(out.size()), out.data());
  return out;
}

}  // namespace ds::test
