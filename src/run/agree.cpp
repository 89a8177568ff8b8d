#include "run/agree.h"

#include <algorithm>

namespace ds {

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

int agree_max(Communicator& comm, int value, const char* label) {
  auto mine = static_cast<uint8_t>(value);
  std::vector<uint8_t> all(static_cast<size_t>(comm.size()));
  comm.all_gather(&mine, all.data(), sizeof mine, label);
  return *std::max_element(all.begin(), all.end());
}

}  // namespace ds
