#include "run/inputs.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/contains.h"
#include "core/base/error.h"
#include "data/masking.h"
#include "nn/models/preference.h"

namespace ds {

ModelInputs::ModelInputs(const HfModel& model, int64_t count, int64_t seq,
                         std::vector<int32_t> mask, std::vector<int32_t> types, int64_t unit)
    : mask_(std::move(mask)),
      types_(std::move(types)),
      sequence_(seq),
      position_offset_(model.position_offset) {
  const Graph& graph = model.graph;
  documents_ = graph.find_value("begin").exists();
  // Until a batch supplies documents, each sequence is one document.
  if (documents_) {
    if (unit == 0) unit = count;
    std::vector<int32_t> begins(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      begins[static_cast<size_t>(i)] = static_cast<int32_t>(i % unit / seq * seq);
    }
    set_documents(begins, unit);
  }
  // The name of an input determines its content. Contents that do not depend on the batch are
  // computed once, here.
  for (ValueId input : graph.inputs) {
    const std::string& name = graph.values[input].name;
    if (name == "tokens") {
      kinds_.push_back(Kind::tokens);
    } else if (name == "targets") {
      kinds_.push_back(Kind::targets);
    } else if (name == "mask") {
      kinds_.push_back(Kind::mask);
      if (mask_.empty()) mask_.assign(static_cast<size_t>(count), 1);
    } else if (name == "token_types") {
      kinds_.push_back(Kind::types);
      if (types_.empty()) types_.assign(static_cast<size_t>(count), 0);
    } else if (name == "counted") {
      kinds_.push_back(Kind::counted);
      counted_.assign(static_cast<size_t>(count), 1);
    } else if (name == kReferenceInput) {
      kinds_.push_back(Kind::reference);
      reference_.assign(static_cast<size_t>(count), 0);
    } else if (name == kChosenTokens || name == kChosenTargets) {
      kinds_.push_back(name == kChosenTokens ? Kind::chosen_tokens : Kind::chosen_targets);
      chosen_.assign(static_cast<size_t>(count), kNoTarget);
    } else if (name == "begin") {
      kinds_.push_back(Kind::begins);
    } else if (name == "positions") {
      kinds_.push_back(Kind::positions);
      if (!documents_) count_positions(count, seq);
    } else {
      raise(DS_ERROR_UNSUPPORTED,
            "family {} has the input '{}', which cannot be filled from tokens", model.family, name);
    }
  }
  // Output 1 is the logits [n, vocab].
  vocabulary_ = graph.type(graph.outputs.at(1).value).shape[1].extent;
}

// Fills the positions. A masked token has the position before the position of the first token.
void ModelInputs::count_positions(int64_t count, int64_t seq) {
  int64_t seen = 0;
  for (int64_t i = 0; i < count; ++i) {
    int64_t shown = mask_.empty() ? 1 : mask_[static_cast<size_t>(i)];
    if (i % seq == 0) seen = 0;
    seen += shown;
    positions_.push_back(static_cast<int32_t>(position_offset_ - 1 + (shown ? seen : 0)));
  }
}

// Fills the inputs `begin` and `positions` for documents. `begin` is an index within the
// micro-batch; a position counts from the beginning of the document.
void ModelInputs::set_documents(std::span<const int32_t> begins, int64_t unit) {
  begins_.assign(begins.begin(), begins.end());
  positions_.resize(begins.size());
  for (int64_t i = 0; i < static_cast<int64_t>(begins.size()); ++i) {
    auto at = static_cast<size_t>(i);
    positions_[at] = static_cast<int32_t>(position_offset_ + i % unit - begins_[at]);
  }
}

bool ModelInputs::takes_chosen(Kind kind) {
  return kind == Kind::chosen_tokens || kind == Kind::chosen_targets;
}

bool ModelInputs::takes(Kind kind) const { return contains(kinds_, kind); }

bool ModelInputs::counts() const { return takes(Kind::counted) || takes(Kind::chosen_tokens); }

bool ModelInputs::referred() const { return takes(Kind::reference); }

// Fills the targets of the chosen texts, which are every other row of `sequence_` tokens. With
// chosen_tokens, each token of the text except the first is a target, those of the prompt, too.
void ModelInputs::set_chosen(const BatchRows& rows) {
  const bool all = takes(Kind::chosen_tokens) && !rows.counted.empty();
  chosen_.assign(rows.targets.size(), kNoTarget);
  for (size_t i = 0; i < chosen_.size(); ++i) {
    const auto row = static_cast<int64_t>(i) / sequence_, at = static_cast<int64_t>(i) % sequence_;
    if (row % 2 != 0) continue;
    const bool next = all && at + 1 < sequence_ && rows.counted[i + 1] != 0;
    chosen_[i] = next ? rows.tokens[i + 1] : rows.targets[i];
  }
}

// Masks, types, begins and positions are stored for full sequences, so a shorter sequence would get
// those of other tokens.
bool ModelInputs::any_length() const {
  return !takes(Kind::mask) && !takes(Kind::types) && !takes(Kind::begins) &&
         !takes(Kind::positions) && !takes(Kind::reference) && chosen_.empty();
}

std::vector<InputView> ModelInputs::views(std::span<const int32_t> tokens,
                                          std::span<const int32_t> targets) const {
  auto count = static_cast<int64_t>(tokens.size());
  std::vector<InputView> out;
  for (Kind kind : kinds_) {
    if (kind == Kind::reference) {
      out.push_back({reference_.data(), DS_DTYPE_F32, count});
      continue;
    }
    const int32_t* data = kind == Kind::tokens    ? tokens.data()
                          : kind == Kind::targets ? targets.data()
                          : kind == Kind::mask    ? mask_.data()
                          : kind == Kind::types   ? types_.data()
                          : kind == Kind::begins  ? begins_.data()
                          : kind == Kind::counted ? counted_.data()
                          : takes_chosen(kind)    ? chosen_.data()
                                                  : positions_.data();
    out.push_back({data, DS_DTYPE_I32, count});
  }
  return out;
}

std::vector<InputView> ModelInputs::views(const BatchRows& rows, int64_t unit) {
  if (documents_) set_documents(rows.begins, unit);
  if (!counted_.empty()) counted_.assign(rows.counted.begin(), rows.counted.end());
  if (!rows.reference.empty()) reference_.assign(rows.reference.begin(), rows.reference.end());
  if (!chosen_.empty()) set_chosen(rows);
  return views(rows.tokens, rows.targets);
}

}  // namespace ds
