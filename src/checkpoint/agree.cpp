// Makes all ranks agree on how a step of a save or load ended.
//
// Problem. A rank that throws between two collectives leaves the others waiting for it until their
// timeout, and they then report a dead peer instead of the cause.
// Invariant. All ranks leave each function of this file in the same way: with the same result, or
// with the same status, message and details.
// Algorithm. In agree() and on_root(), the local part runs first and its outcome is caught. One
// all_gather (or one broadcast from rank 0) of a struct of fixed size then spreads the outcomes,
// and every rank picks the same one.
// Cost. agree() costs one collective of about 5.5 KiB per rank. A text of any length, in on_root()
// and gather_texts(), needs a second collective.
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

// The result of one rank's part or, if it failed, the status, message and details of its error.
struct Outcome {
  int32_t status = DS_OK;
  std::string text;
  ErrorDetails details = {};
};

Outcome attempt(const std::function<std::string()>& make) {
  try {
    return {DS_OK, make()};
  } catch (const Error& error) {
    return {error.status(), error.what(), error.details()};
  } catch (const std::bad_alloc&) {
    return {DS_ERROR_OUT_OF_MEMORY, "out of memory"};
  } catch (const std::exception& error) {
    return {DS_ERROR_INTERNAL, error.what()};
  }
}

// An Outcome without its result, in the fixed size that all_gather needs. Longer texts are cut off.
// A message has room for almost 4 KiB, because the error of an exceeded budget contains a memory
// table.
struct Wire {
  int32_t status = DS_OK, rank = -1;
  char message[4088] = {}, key[512] = {}, tensor[1024] = {};

  explicit Wire(const Outcome& outcome = {})
      : status(outcome.status), rank(static_cast<int32_t>(outcome.details.rank)) {
    put(outcome.text, message);
    put(outcome.details.key, key);
    put(outcome.details.tensor, tensor);
  }
  template <size_t size>
  static void put(const std::string& text, char (&to)[size]) {
    std::memcpy(to, text.data(), std::min(text.size(), size - 1));
  }
  ErrorDetails details() const { return {key, tensor, rank}; }
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
    ErrorDetails details = all[r].details();
    if (comm.size() == 1) throw Error(status, all[r].message, details);
    details.take(RankNumber(r));
    throw Error(status, fmt::format("rank {}: {}", r, all[r].message), details);
  }
}

std::string on_root(Communicator& comm, std::string_view label,
                    const std::function<std::string()>& make) {
  Outcome outcome;
  if (comm.rank() == 0) outcome = attempt(make);
  // After a success, the message field carries the size of the text, so one broadcast says both
  // whether make() threw and how many bytes the next broadcast has.
  Wire error(outcome.status == DS_OK ? Outcome() : outcome);
  uint64_t size = outcome.text.size();
  std::memcpy(error.message, &size, error.status == DS_OK ? sizeof size : 0);
  comm.broadcast(&error, sizeof error, 0, label);
  if (error.status != DS_OK)
    throw Error(static_cast<ds_status>(error.status), error.message, error.details());
  std::memcpy(&size, error.message, sizeof size);
  outcome.text.resize(size);
  if (size > 0) comm.broadcast(outcome.text.data(), size, 0, label);
  return outcome.text;
}

std::vector<std::string> gather_texts(Communicator& comm, const std::string& mine,
                                      const char* label) {
  auto ranks = static_cast<size_t>(comm.size());
  uint64_t size = mine.size();
  std::vector<uint64_t> sizes(ranks);
  comm.all_gather(&size, sizes.data(), sizeof size, label);
  size_t largest = *std::ranges::max_element(sizes);
  std::vector<std::string> texts(ranks);
  if (largest == 0) return texts;
  // all_gather sends equally many bytes from each rank, so every text is padded to the longest one.
  std::string padded = mine, all(largest * ranks, '\0');
  padded.resize(largest);
  comm.all_gather(padded.data(), all.data(), largest, label);
  for (size_t r = 0; r < ranks; ++r) texts[r] = all.substr(r * largest, sizes[r]);
  return texts;
}

void agree_equal(Communicator& comm, std::string_view subject, const std::string& mine) {
  std::vector<std::string> all = gather_texts(comm, mine, std::string(subject).c_str());
  if (size_t r = first_different(all); r != 0) {
    raise(DS_ERROR_CONFIG, "{} is {} on rank 0, {} on rank {}", subject, all[0], all[r],
          RankNumber(r));
  }
}

size_t first_different(const std::vector<std::string>& of_ranks) {
  auto other =
      std::ranges::find_if(of_ranks, [&](const std::string& text) { return text != of_ranks[0]; });
  return other == of_ranks.end() ? 0 : static_cast<size_t>(other - of_ranks.begin());
}

int agree_max(Communicator& comm, int value, const char* label) {
  auto mine = static_cast<uint8_t>(value);
  std::vector<uint8_t> all(static_cast<size_t>(comm.size()));
  comm.all_gather(&mine, all.data(), sizeof mine, label);
  return *std::ranges::max_element(all);
}

}  // namespace ds
