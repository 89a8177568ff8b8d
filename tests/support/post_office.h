#pragma once
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ds_plugin.h"

namespace ds::test {

// The messages in flight between ranks of this process over `post_transport`.
struct Office {
  // The largest number of ranks.
  static constexpr size_t kMost = 128;
  std::mutex mutex;
  int size = 2;
  // Messages that have not been received yet, by {from, to}.
  std::map<std::pair<int, int>, std::deque<std::vector<char>>> letters;
  std::vector<char> left = std::vector<char>(kMost);
  int aborted_by = -1;
  std::string reason;
  // If set, every poll reports every rank as making progress.
  bool lively = false;
  std::vector<uint64_t> signs = std::vector<uint64_t>(kMost), moved = std::vector<uint64_t>(kMost);
  std::vector<std::string> stalls = std::vector<std::string>(kMost);
};

// A plugin's transport between threads of this process, with which a test decides what arrives.
// Links connect through the office that was opened last.
void open_office(Office* office);
const ds_plugin_transport_table& post_transport();
// Returns whether `to` has received everything that `from` has sent to it.
bool is_taken(int from, int to);

}  // namespace ds::test
