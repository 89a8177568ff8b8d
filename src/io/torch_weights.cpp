#include "io/torch_weights.h"

#include <cstdint>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/base/content_kind.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "io/file.h"
#include "io/file_kind.h"
#include "io/pickle.h"
#include "io/torch_file.h"

namespace ds {
namespace {

// Returns the entry of one tensor of the state dict, or nullopt if the value is not a tensor.
// Errors name the tensor.
std::optional<SafetensorEntry> entry_of(const TorchFile& file, const std::string& name,
                                        const PickleValue& value) try {
  std::optional<TorchTensor> tensor = file.tensor(value);
  if (!tensor) return std::nullopt;
  SafetensorEntry entry{name, tensor->data.dtype, std::move(tensor->shape),
                        file.place(tensor->data), 0};
  entry.bytes = tensor->numel * size_of(entry.dtype);
  return entry;
} catch (const Error& error) {
  raise(error.status(), "{} (tensor '{}')", error.what(), TensorName(name));
}

// Returns the entries of all tensors in a state dict.
SafetensorHeader read_state_dict(const std::string& path) {
  TorchFile file(path);
  SafetensorHeader header;
  header.file_bytes = File(path, File::Mode::read).size();
  std::unordered_set<std::string> names;
  const std::vector<PickleId>& pairs = file.pickle().pairs(file.root());
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    const PickleValue& key = file.pickle().at(pairs[i]);
    if (key.kind != PickleValue::Kind::text) continue;
    std::optional<SafetensorEntry> entry = entry_of(file, key.text, file.pickle().at(pairs[i + 1]));
    if (!entry) continue;
    if (!names.insert(entry->name).second)
      raise(DS_ERROR_CORRUPT, "{}: tensor '{}' appears twice", path, TensorName(entry->name));
    header.entries.push_back(std::move(*entry));
  }
  // In training checkpoints the state dict is often nested one level deeper, so no tensor is found.
  if (header.entries.empty())
    raise(DS_ERROR_CORRUPT,
          "{}: has no tensors by name: a state dict is wanted, as save_pretrained() writes", path);
  return header;
}

}  // namespace

SafetensorHeader read_torch_weights(const std::string& path) {
  try {
    return read_state_dict(path);
  } catch (const Error& fault) {
    raise_fault(path, fault, Wanted::torch);
  }
}

}  // namespace ds
