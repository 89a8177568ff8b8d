#pragma once
#include <memory>

#include "comm/communicator.h"
#include "ds.h"

namespace ds::test {

// A rank of a host application that implements collectives itself. Its callbacks block, and send
// messages through the post office that was opened last (post_office.h). They return an error when
// a rank has aborted or left the group. The object is the user_data of its callbacks; destroy()
// frees it.
struct CallerRank {
  CallerRank(int rank, int size);
  ~CallerRank();
  CallerRank(const CallerRank&) = delete;
  CallerRank& operator=(const CallerRank&) = delete;

  ds_comm_callbacks callbacks();

  ds_plugin_link* link = nullptr;
  const int rank, size;
  // Number of calls of each callback so far.
  int gathers = 0, swaps = 0, pairs = 0;
};

// Creates a communicator over these callbacks. `gathers` and `pairs` choose whether the optional
// callbacks are set as well.
std::unique_ptr<Communicator> make_caller_group(int rank, int size, bool gathers = true,
                                                bool pairs = true);

}  // namespace ds::test
