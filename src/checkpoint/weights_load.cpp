#include "checkpoint/weights_load.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/adapter_folder.h"
#include "checkpoint/agree.h"
#include "checkpoint/state_access.h"
#include "checkpoint/weight_match.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/half.h"
#include "core/base/ids.h"
#include "core/base/log.h"
#include "core/graph/graph.h"
#include "core/graph/param_slice.h"
#include "core/program/granules.h"
#include "io/file.h"
#include "io/safetensors.h"

namespace ds {
namespace {

// Number of elements that are read at a time.
constexpr size_t kReadBlock = 1 << 18;

class Loader {
 public:
  Loader(StateAccess& state, const std::string& path, const std::string& adapter)
      : state_(state), path_(path), adapter_(adapter) {}

  void load() {
    agree(state_.comm(), "weights check", [&] {
      const IdVector<ParamId, std::string>& names = state_.param_names();
      match_ = is_adapter_folder(path_)
                   ? match_adapter(names, state_.param_shapes(), path_, adapter_)
                   : match_weights(names, state_.param_shapes(), path_);
      files_ = open_files(match_.folder);
      if (state_.comm().rank() == 0) {
        for (size_t copy : match_.copies) check_copy(copy);
      }
    });
    if (const std::string warning = match_.warning(); state_.comm().rank() == 0 && !warning.empty())
      log_line(LogLevel::warning, fmt::format("'{}': {}", path_, warning));
    agree(state_.comm(), "weights read", [&] {
      for (BucketId b : state_.layout().buckets.ids()) read_bucket(b);
    });
  }

 private:
  // Throws unless both stored tensors of a tied parameter have the same bytes.
  void check_copy(size_t copy) {
    if (is_equal_copy(match_, copy, files_)) return;
    const WeightSource& source = match_.sources[copy];
    raise(DS_ERROR_CONFIG, "'{}': tensors '{}' and '{}' are tied in the model, but not equal",
          path_, match_.entry(match_.sources[match_.of_param[source.param]]).name,
          match_.entry(source).name);
  }

  // Reads the part of the bucket that this rank holds into its masters.
  void read_bucket(BucketId b) {
    int64_t low = state_.first(b), high = low + state_.held(b);
    for (const ParamPlace& p : state_.layout().buckets[b].params) {
      // A parameter that is not stored keeps its random initial values.
      if (match_.of_param[p.param] == WeightMatch::kNone) continue;
      const WeightSource& source = match_.sources[match_.of_param[p.param]];
      const SafetensorEntry& entry = match_.entry(source);
      int64_t begin = std::max(low, p.begin), end = std::min(high, p.begin + p.numel);
      if (begin >= end) continue;
      auto read = [&](int64_t local, int64_t whole, int64_t n) {
        int64_t unit = size_of(entry.dtype);
        files_[source.file].read(bytes_.data(), static_cast<size_t>(n * unit),
                                 entry.begin + whole * unit);
        widen(entry.dtype, bytes_.data(), n, block_.data());
        state_.write_state(StateKind::master, b, p.begin + local, n, block_.data());
      };
      for (const SliceBlock& block : state_.slice(p.param).blocks(begin - p.begin, end - begin))
        for_each_run(block, static_cast<int64_t>(block_.size()), read);
    }
  }

  StateAccess& state_;
  std::string path_, adapter_;
  WeightMatch match_;
  std::vector<File> files_;
  std::vector<float> block_ = std::vector<float>(kReadBlock);
  std::vector<std::byte> bytes_ = std::vector<std::byte>(kReadBlock * sizeof(float));
};

}  // namespace

void load_weights(StateAccess& state, const std::string& folder, const std::string& adapter) {
  Loader(state, folder, adapter).load();
}

}  // namespace ds
