#include "checkpoint/agree.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <vector>

#include "core/base/error.h"

namespace ds {
namespace {

// How a rank's part ended: its result, or status and message of what it threw.
struct Outcome {
  int32_t status = DS_OK;
  std::string text;
};

Outcome attempt(const std::function<std::string()>& make) {
  try {
    return {DS_OK, make()};
  } catch (const Error& error) {
    return {error.status(), error.what()};
  } catch (const std::bad_alloc&) {
    return {DS_ERROR_OUT_OF_MEMORY, "the system refuses memory"};
  } catch (const std::exception& error) {
    return {DS_ERROR_INTERNAL, error.what()};
  }
}

// An outcome without result for all_gather: of fixed size. 4 KiB hold a table of memory.
struct Wire {
  int32_t status = DS_OK;
  char message[4092] = {};

  explicit Wire(const Outcome& outcome = {}) : status(outcome.status) {
    std::memcpy(message, outcome.text.data(), std::min(outcome.text.size(), sizeof message - 1));
  }
};

}  // namespace

void agree(Communicator& comm, std::string_view label, const std::function<void()>& body) {
  Wire mine(attempt([&] {
    body();
    return std::string();
  }));
  std::vector<Wire> all(static_cast<size_t>(comm.size()));
  comm.all_gather(&mine, all.data(), sizeof mine, label);
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r].status == DS_OK) continue;
    auto status = static_cast<ds_status>(all[r].status);
    if (comm.size() == 1) throw Error(status, all[r].message);
    throw Error(status, fmt::format("rank {}: {}", r, all[r].message));
  }
}

std::string on_root(Communicator& comm, std::string_view label, const std::function<std::string()>& make) {
  Outcome outcome;
  if (comm.rank() == 0) outcome = attempt(make);
  uint64_t header[2] = {static_cast<uint64_t>(outcome.status), outcome.text.size()};
  comm.broadcast(header, sizeof header, 0, label);
  outcome.text.resize(header[1]);
  if (header[1] > 0) comm.broadcast(outcome.text.data(), outcome.text.size(), 0, label);
  if (header[0] != DS_OK) throw Error(static_cast<ds_status>(header[0]), outcome.text);
  return outcome.text;
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

void agree_equal(Communicator& comm, std::string_view subject, const std::string& mine) {
  std::vector<std::string> all = gather_texts(comm, mine, std::string(subject).c_str());
  if (size_t r = first_different(all); r != 0) {
    raise(DS_ERROR_CONFIG, "{} is {} on rank 0, {} on rank {}", subject, all[0], all[r], r);
  }
}

size_t first_different(const std::vector<std::string>& of_ranks) {
  auto other = std::find_if(of_ranks.begin(), of_ranks.end(),
                            [&](const std::string& text) { return text != of_ranks[0]; });
  return other == of_ranks.end() ? 0 : static_cast<size_t>(other - of_ranks.begin());
}

int agree_max(Communicator& comm, int value, const char* label) {
  auto mine = static_cast<uint8_t>(value);
  std::vector<uint8_t> all(static_cast<size_t>(comm.size()));
  comm.all_gather(&mine, all.data(), sizeof mine, label);
  return *std::max_element(all.begin(), all.end());
}

}  // namespace ds
