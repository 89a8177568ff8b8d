#include "checkpoint/weights_load.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/agree.h"
#include "checkpoint/open_weights.h"
#include "checkpoint/state_access.h"
#include "checkpoint/stored_weights.h"
#include "core/base/log.h"
#include "core/graph/graph.h"
#include "core/graph/param_slice.h"
#include "core/program/granules.h"

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
      weights_ = open_weights(state_.param_names(), state_.param_shapes(), path_, adapter_);
      if (state_.comm().rank() == 0) weights_->check_copies();
    });
    if (const std::string warning = weights_->warning();
        state_.comm().rank() == 0 && !warning.empty())
      log_line(LogLevel::warning, fmt::format("'{}': {}", path_, warning));
    agree(state_.comm(), "weights read", [&] {
      for (BucketId b : state_.layout().buckets.ids()) read_bucket(b);
    });
  }

 private:
  // Reads the part of the bucket that this rank holds into its masters.
  void read_bucket(BucketId b) {
    int64_t low = state_.first(b), high = low + state_.held(b);
    for (const ParamPlace& p : state_.layout().buckets[b].params) {
      // A parameter that is not stored keeps its random initial values.
      if (!weights_->has(p.param)) continue;
      int64_t begin = std::max(low, p.begin), end = std::min(high, p.begin + p.numel);
      if (begin >= end) continue;
      auto read = [&](int64_t local, int64_t whole, int64_t n) {
        weights_->read(p.param, whole, n, block_.data());
        state_.write_state(StateKind::master, b, p.begin + local, n, block_.data());
      };
      for (const SliceBlock& block : state_.slice(p.param).blocks(begin - p.begin, end - begin))
        for_each_run(block, static_cast<int64_t>(block_.size()), read);
    }
  }

  StateAccess& state_;
  std::string path_, adapter_;
  std::unique_ptr<StoredWeights> weights_;
  std::vector<float> block_ = std::vector<float>(kReadBlock);
};

}  // namespace

void load_weights(StateAccess& state, const std::string& folder, const std::string& adapter) {
  Loader(state, folder, adapter).load();
}

}  // namespace ds
