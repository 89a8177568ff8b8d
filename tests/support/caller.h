#pragma once
#include <memory>

#include "comm/communicator.h"
#include "ds.h"

namespace ds::test {

// The collectives of a program of its own, as such programs write them: blocking, over messages of
// the office that was last opened (post_office.h), with an end when a rank has ended the group or
// has left it. One object is one rank; it is the user_data of its callbacks and ends with
// destroy().
struct CallerRank {
  CallerRank(int rank, int size);
  ~CallerRank();
  CallerRank(const CallerRank&) = delete;
  CallerRank& operator=(const CallerRank&) = delete;

  ds_comm_callbacks callbacks();

  ds_plugin_link* link = nullptr;
  const int rank, size;
  int gathers = 0, swaps = 0, pairs = 0;  // calls so far
};

// A communicator over such callbacks; `gathers` and `pairs`: whether the program has these
// callbacks, too.
std::unique_ptr<Communicator> make_caller_group(int rank, int size, bool gathers = true,
                                                bool pairs = true);

}  // namespace ds::test
