// Computes the losses of the reference of a run.
//
// Every rank has all losses in memory at the end, 8 bytes for each text. Rank 0 alone uses the
// file. A computation that was killed continues at the group of the first missing text: groups have
// fixed pairs, so the texts of that group that the file already has get the same values again.
#include "run/reference_pass.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <span>
#include <vector>

#include "checkpoint/adapter_folder.h"
#include "checkpoint/agree.h"
#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/round.h"
#include "data/batch_rows.h"
#include "data/masking.h"
#include "io/file.h"
#include "nn/adapter_keys.h"
#include "run/stop.h"

namespace ds {
namespace {

constexpr int64_t kTexts = 2;
constexpr const char* kAdapterWeights = "/adapter_model.safetensors";

// Returns a hash of the model that a run starts from, with its compute type.
std::string model_hash(const Config& config) {
  Hash128 hash;
  hash.update(dtype_name(config.compute));
  if (!config.model.folder.empty() && config.model.init == "folder") {
    hash.update(base_hash(config.model.folder));
  } else {
    hash.update(config.effective().at("config").at("model").dump());
    hash.update(std::to_string(config.seed));
  }
  const AdapterKeys& adapter = config.get<AdapterKeys>();
  // A new adapter changes nothing, unless its B is drawn.
  if (adapter.on() && adapter.init == "false")
    hash.update(adapter_json(adapter).dump() + std::to_string(config.seed));
  const std::string weights = adapter.folder + kAdapterWeights;
  if (!adapter.folder.empty() && exists(weights))
    hash.update(read_file(weights, int64_t{64} << 30));
  return hash.hex();
}

class Pass {
 public:
  Pass(Engine& engine, ModelInputs& inputs, const RunData& data, const ReferenceRequest& request)
      : engine_(engine),
        inputs_(inputs),
        data_(data),
        request_(request),
        config_(engine.runtime().config()),
        comm_(engine.runtime().comm()),
        unit_(config_.micro_batch * kTexts * config_.sequence),
        tokens_(static_cast<size_t>(unit_)),
        targets_(tokens_.size()),
        counted_(inputs.counts() ? tokens_.size() : 0),
        reference_(inputs.referred() ? tokens_.size() : 0) {}

  std::optional<ReferenceLosses> run() {
    on_root(comm_, "reference", [&] {
      open();
      return std::string();
    });
    const int64_t train = kTexts * data_.pairs(false), heldout = kTexts * data_.pairs(true);
    int64_t have = file_ ? std::ssize(file_->values()) : 0;
    comm_.broadcast(&have, sizeof have, 0, "reference losses");
    if (have < train + heldout && !(compute(false, have) && compute(true, have - train))) return {};
    std::vector<double> all(static_cast<size_t>(train + heldout));
    if (file_) all = file_->values();
    comm_.broadcast(all.data(), std::ssize(all) * int64_t{sizeof(double)}, 0, "reference losses");
    return reference_losses(all, train);
  }

 private:
  void open() {
    const Json record = data_.record();
    const ReferenceOwner owner{record.at("train.tokens").string(),
                               record.at("heldout.tokens").string(),
                               model_hash(config_),
                               config_.sequence,
                               kTexts * data_.pairs(false),
                               kTexts * data_.pairs(true)};
    if (request_.complete) {
      file_.emplace(ReferenceFile::complete(request_.path, owner));
      return request_.note(
          fmt::format("reference: {} texts of '{}'", owner.texts(), request_.path));
    }
    file_.emplace(request_.path, owner);
    request_.note(
        fmt::format("reference: computing the losses of {} texts{}", owner.texts(),
                    file_->values().empty()
                        ? ""
                        : fmt::format("; {} are in '{}'", file_->values().size(), request_.path)));
  }

  // Computes the losses of the training or the held-out texts from text `have` on. Returns false if
  // a stop was requested.
  bool compute(bool heldout, int64_t have) {
    have = std::max<int64_t>(have, 0);
    const int64_t pairs = data_.pairs(heldout), micro = config_.micro_batch,
                  begin = have / (kTexts * micro), end = ceil_div(pairs, micro);
    for (int64_t round = begin; round < end; round += comm_.size()) {
      const std::vector<double> sums = sums_of(heldout, (round + comm_.rank()) * micro);
      std::vector<double> all(sums.size() * static_cast<size_t>(comm_.size()));
      comm_.all_gather(sums.data(), all.data(), std::ssize(sums) * int64_t{sizeof(double)},
                       "reference losses");
      const int64_t first = round * micro * kTexts,
                    last = std::min(first + std::ssize(all), pairs * kTexts);
      agree(comm_, "reference", [&] {
        if (file_ && last > have)
          file_->add(std::span(all).subspan(static_cast<size_t>(std::max(have - first, int64_t{0})),
                                            static_cast<size_t>(last - std::max(have, first))));
      });
      have = std::max(have, last);
      if (stop_asked_of_any(comm_, request_.stop)) return false;
    }
    return true;
  }

  // Returns the sums of the losses of the texts of one micro-batch, over the rows with a target.
  std::vector<double> sums_of(bool heldout, int64_t first) {
    const BatchRows rows{tokens_, targets_, {}, counted_, reference_};
    data_.fill_pairs(heldout, first, rows);
    const Inferred losses = engine_.infer(inputs_.views(rows, unit_));
    std::vector<double> sums(static_cast<size_t>(kTexts * config_.micro_batch));
    for (size_t i = 0; i < targets_.size(); ++i) {
      if (targets_[i] != kNoTarget)
        sums[i / static_cast<size_t>(config_.sequence)] += static_cast<double>(losses.values[i]);
    }
    return sums;
  }

  Engine& engine_;
  ModelInputs& inputs_;
  const RunData& data_;
  const ReferenceRequest& request_;
  const Config& config_;
  Communicator& comm_;
  // Rows of a micro-batch.
  const int64_t unit_;
  std::vector<int32_t> tokens_, targets_, counted_;
  std::vector<float> reference_;
  std::optional<ReferenceFile> file_;
};

}  // namespace

std::optional<ReferenceLosses> find_reference(Engine& engine, ModelInputs& inputs,
                                              const RunData& data,
                                              const ReferenceRequest& request) {
  return Pass(engine, inputs, data, request).run();
}

}  // namespace ds
