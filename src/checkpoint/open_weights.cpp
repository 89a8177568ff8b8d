#include "checkpoint/open_weights.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "checkpoint/adapter_folder.h"
#include "checkpoint/gguf/weights.h"
#include "checkpoint/weight_match.h"
#include "core/base/error.h"
#include "core/base/half.h"
#include "io/file.h"
#include "io/gguf.h"
#include "io/safetensors.h"
#include "io/tensor_folder.h"

namespace ds {
namespace {

// Elements that are read at a time.
constexpr int64_t kStoredBlock = 1 << 18;

class FolderWeights : public StoredWeights {
 public:
  explicit FolderWeights(WeightMatch match)
      : match_(std::move(match)), files_(open_files(match_.folder)) {}

  bool has(ParamId param) const override { return match_.of_param[param] != WeightMatch::kNone; }
  DType dtype(ParamId param) const override { return match_.entry(source(param)).dtype; }

  void read(ParamId param, int64_t begin, int64_t count, float* out) override {
    const WeightSource& from = source(param);
    const SafetensorEntry& entry = match_.entry(from);
    const int64_t unit = size_of(entry.dtype);
    bytes_.resize(
        std::max(bytes_.size(), static_cast<size_t>(std::min(count, kStoredBlock) * unit)));
    for (int64_t at = begin, end = begin + count; at < end;) {
      const int64_t n = std::min(end - at, kStoredBlock);
      files_[from.file].read(bytes_.data(), static_cast<size_t>(n * unit), entry.begin + at * unit);
      widen(entry.dtype, bytes_.data(), n, out);
      out += n;
      at += n;
    }
  }

  void check_copies() const override {
    for (size_t copy : match_.copies) {
      if (is_equal_copy(match_, copy, files_)) continue;
      const WeightSource& second = match_.sources[copy];
      raise(DS_ERROR_CONFIG, "'{}': tensors '{}' and '{}' are tied in the model, but not equal",
            match_.folder.path, match_.entry(source(second.param)).name, match_.entry(second).name);
    }
  }

  std::string warning() const override { return match_.warning(); }

 private:
  const WeightSource& source(ParamId param) const { return match_.sources[match_.of_param[param]]; }

  WeightMatch match_;
  std::vector<File> files_;
  std::vector<std::byte> bytes_;
};

}  // namespace

std::unique_ptr<StoredWeights> open_weights(const IdVector<ParamId, std::string>& names,
                                            const IdVector<ParamId, std::vector<int64_t>>& shapes,
                                            const std::string& path, const std::string& adapter) {
  if (is_gguf(path)) return open_gguf_weights(names, shapes, path);
  return std::make_unique<FolderWeights>(is_adapter_folder(path)
                                             ? match_adapter(names, shapes, path, adapter)
                                             : match_weights(names, shapes, path));
}

bool has_weights(const std::string& path) { return is_gguf(path) || has_tensors(path); }

}  // namespace ds
