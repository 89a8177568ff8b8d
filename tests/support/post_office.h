#pragma once
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ds_plugin.h"

namespace ds::test {

// What ranks of this process have sent each other over `post_transport`.
struct Office {
  static constexpr size_t kMost = 128;  // ranks
  std::mutex mutex;
  int size = 2;
  std::map<std::pair<int, int>, std::deque<std::vector<char>>> letters;  // (from, to)
  std::vector<char> left = std::vector<char>(kMost);
  int aborted_by = -1;
  std::string reason;
  bool lively = false;  // everyone works, as every poll sees
  std::vector<uint64_t> signs = std::vector<uint64_t>(kMost), moved = std::vector<uint64_t>(kMost);
  std::vector<std::string> stalls = std::vector<std::string>(kMost);
};

// A plugin's transport between threads of this process, in which a test decides what arrives. Its
// links meet in the office that was last opened.
void open_office(Office* office);
const ds_plugin_transport_table& post_transport();
// Whether `to` has taken all that `from` has sent it.
bool is_taken(int from, int to);

}  // namespace ds::test
