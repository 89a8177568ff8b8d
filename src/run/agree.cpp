#include "run/agree.h"

#include <algorithm>

#include "core/base/error.h"

namespace ds {
namespace {

// A status and a text, as they travel between ranks.
struct Outcome {
  int32_t status = DS_OK;
  std::string text;
};

Outcome attempt(const std::function<std::string()>& make) {
  try {
    return {DS_OK, make()};
  } catch (const Error& e) {
    return {e.status(), e.what()};
  }
}

std::string unwrap(const Outcome& outcome) {
  if (outcome.status != DS_OK) throw Error(static_cast<ds_status>(outcome.status), outcome.text);
  return outcome.text;
}

}  // namespace

std::string on_root(Communicator& comm, const char* label, const std::function<std::string()>& make) {
  Outcome outcome;
  if (comm.rank() == 0) outcome = attempt(make);
  uint64_t header[2] = {static_cast<uint64_t>(outcome.status), outcome.text.size()};
  comm.broadcast(header, sizeof header, 0, label);
  outcome.status = static_cast<int32_t>(header[0]);
  outcome.text.resize(header[1]);
  if (header[1] > 0) comm.broadcast(outcome.text.data(), outcome.text.size(), 0, label);
  return unwrap(outcome);
}

std::vector<std::string> gather_texts(Communicator& comm, const std::string& mine, const char* label) {
  auto ranks = static_cast<size_t>(comm.size());
  uint64_t size = mine.size();
  std::vector<uint64_t> sizes(ranks);
  comm.all_gather(&size, sizes.data(), sizeof size, label);
  size_t largest = *std::max_element(sizes.begin(), sizes.end());
  std::vector<std::string> texts(ranks);
  if (largest == 0) return texts;
  std::string padded = mine, all(largest * ranks, '\0');
  padded.resize(largest);
  comm.all_gather(padded.data(), all.data(), largest, label);
  for (size_t r = 0; r < ranks; ++r) texts[r] = all.substr(r * largest, sizes[r]);
  return texts;
}

void require_equal(Communicator& comm, const char* what, const std::string& value) {
  std::vector<std::string> all = gather_texts(comm, value, what);
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r] != all[0]) {
      raise(DS_ERROR_CONFIG, "{} must be equal on all ranks: rank 0 has {}, rank {} has {}", what, all[0], r,
            all[r]);
    }
  }
}

int agree_max(Communicator& comm, int value, const char* label) {
  auto mine = static_cast<uint8_t>(value);
  std::vector<uint8_t> all(static_cast<size_t>(comm.size()));
  comm.all_gather(&mine, all.data(), sizeof mine, label);
  return *std::max_element(all.begin(), all.end());
}

}  // namespace ds
