#include "run/reference.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/config/refuse.h"
#include "data/masking.h"

namespace ds {
namespace {

// Texts in a record.
constexpr int64_t kRecord = 512;
constexpr std::string_view kMagic = "libds reference losses 1\n";
// The header is one text, which ends with blanks.
constexpr int64_t kHeader = 256;

std::string header_of(const ReferenceOwner& owner) {
  std::string text =
      fmt::format("{}{} {} {} {} {} {}", kMagic, owner.train, owner.heldout, owner.model,
                  owner.sequence, owner.train_texts, owner.heldout_texts);
  ensure(std::ssize(text) < kHeader, "the header of '{}' is too long", owner.model);
  text.resize(kHeader - 1, ' ');
  return text + "\n";
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> out;
  for (size_t at = text.find_first_not_of(" \n"); at < text.size();
       at = text.find_first_not_of(" \n", at)) {
    const size_t end = std::min(text.find_first_of(" \n", at), text.size());
    out.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return out;
}

// The checksum also covers the place of the record.
uint64_t checksum(const double* values, int64_t count, int64_t first) {
  std::string bytes(static_cast<size_t>(count) * sizeof(double) + sizeof first, '\0');
  std::memcpy(bytes.data(), values, static_cast<size_t>(count) * sizeof(double));
  std::memcpy(bytes.data() + bytes.size() - sizeof first, &first, sizeof first);
  return hash64(bytes);
}

int64_t place_of(int64_t first) {
  return kHeader + first / kRecord * (kRecord + 1) * int64_t{sizeof(double)};
}

}  // namespace

void place_reference(double sum, const BatchRows& text) {
  std::ranges::fill(text.reference, 0.0F);
  int parts = 0;
  for (size_t i = 0; i < text.targets.size() && parts < 2; ++i) {
    if (text.targets[i] == kNoTarget) continue;
    text.reference[i] = static_cast<float>(sum);
    sum -= static_cast<double>(text.reference[i]);
    ++parts;
  }
}

ReferenceFile::ReferenceFile(const std::string& path, const ReferenceOwner& owner)
    : ReferenceFile(path, owner, !name_exists(path)) {}

ReferenceFile::ReferenceFile(const std::string& path, const ReferenceOwner& owner, bool fresh)
    : owner_(owner) {
  // A file that was killed while it was created has no whole header.
  fresh = fresh || state_of(path).size < kHeader;
  file_ = File(path, File::Mode::write);
  if (fresh) {
    const std::string header = header_of(owner);
    file_.write(header.data(), header.size(), 0);
    file_.sync();
    return;
  }
  check_owner(owner);
  read_records();
}

ReferenceFile ReferenceFile::complete(const std::string& path, const ReferenceOwner& owner) {
  if (!exists(path)) raise(DS_ERROR_NOT_FOUND, "'{}' does not exist", path);
  if (state_of(path).size < kHeader)
    raise(DS_ERROR_CORRUPT, "'{}' is not a file of reference losses", path);
  ReferenceFile out(path, owner, false);
  const int64_t have = std::ssize(out.values_);
  if (have == owner.texts()) return out;
  raise(DS_ERROR_CORRUPT, "'{}' has the losses of {} of {} texts; the rest is missing or damaged",
        path, have, owner.texts());
}

void ReferenceFile::check_owner(const ReferenceOwner& owner) const {
  std::string text(kHeader, '\0');
  file_.read(text.data(), text.size(), 0);
  const std::vector<std::string> have =
      words_of(std::string_view(text).substr(std::min(kMagic.size(), text.size())));
  if (!text.starts_with(kMagic) || have.size() != 6)
    raise(DS_ERROR_CORRUPT, "'{}' is not a file of reference losses", file_.path());
  const std::string want[] = {owner.train,
                              owner.heldout,
                              owner.model,
                              std::to_string(owner.sequence),
                              std::to_string(owner.train_texts),
                              std::to_string(owner.heldout_texts)};
  const char* names[] = {"training pairs", "held-out pairs", "model",
                         "run.sequence",   "training texts", "held-out texts"};
  // The model comes first, since a wrong one is the usual mistake.
  for (size_t i : {2, 0, 1, 3, 4, 5}) {
    if (have[i] == want[i]) continue;
    refuse("preference.reference", "'{}' belongs to other {}: it has {}, but this run has {}",
           file_.path(), names[i], have[i], want[i]);
  }
}

// Reads whole records up to the first that is missing or damaged; the file is written again from
// there.
void ReferenceFile::read_records() {
  const int64_t bytes = file_.size();
  for (int64_t first = 0; first < owner_.texts(); first += kRecord) {
    const int64_t count = std::min(kRecord, owner_.texts() - first), at = place_of(first);
    std::vector<double> record(static_cast<size_t>(count));
    const int64_t size = count * int64_t{sizeof(double)};
    uint64_t sum = 0;
    if (at + size + int64_t{sizeof sum} > bytes) break;
    file_.read(record.data(), static_cast<size_t>(size), at);
    file_.read(&sum, sizeof sum, at + size);
    if (sum != checksum(record.data(), count, first)) break;
    values_.insert(values_.end(), record.begin(), record.end());
  }
  written_ = std::ssize(values_);
}

void ReferenceFile::add(std::span<const double> losses) {
  const int64_t room = owner_.texts() - std::ssize(values_);
  losses = losses.first(static_cast<size_t>(std::min<int64_t>(room, std::ssize(losses))));
  values_.insert(values_.end(), losses.begin(), losses.end());
  while (written_ < owner_.texts()) {
    const int64_t count = std::min(kRecord, owner_.texts() - written_);
    if (written_ + count > std::ssize(values_)) break;
    write_record(written_, count);
    written_ += count;
  }
}

void ReferenceFile::write_record(int64_t first, int64_t count) {
  const double* values = values_.data() + first;
  const uint64_t sum = checksum(values, count, first);
  const int64_t at = place_of(first), size = count * int64_t{sizeof(double)};
  file_.write(values, static_cast<size_t>(size), at);
  file_.write(&sum, sizeof sum, at + size);
  file_.sync();
}

ReferenceLosses reference_losses(const std::vector<double>& values, int64_t train_texts) {
  const auto middle = values.begin() + train_texts;
  const auto* bytes = reinterpret_cast<const char*>(values.data());
  return {{values.begin(), middle},
          {middle, values.end()},
          hash_hex({bytes, values.size() * sizeof(double)})};
}

}  // namespace ds
