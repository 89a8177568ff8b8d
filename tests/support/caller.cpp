#include "support/caller.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "comm/callback_exchange.h"
#include "support/post_office.h"

namespace ds::test {
namespace {

CallerRank& rank_of(void* user_data) { return *static_cast<CallerRank*>(user_data); }

// Sends to and receives from all ranks. Parts of size 0 are not sent.
ds_status move(CallerRank& caller, const std::vector<ds_plugin_part>& sends,
               const std::vector<ds_plugin_part>& receives) {
  const ds_plugin_transport_table& post = post_transport();
  std::vector<uint8_t> arrived(sends.size());
  std::vector<uint64_t> signs(sends.size());
  post.start(caller.link, sends.data(), receives.data());
  for (int32_t done = 0, last = 0;;) {
    post.poll(caller.link, &done, arrived.data(), signs.data());
    if (done) return DS_OK;
    if (last) return DS_ERROR_COMM;
    if (post.aborted_by(caller.link) >= 0) return DS_ERROR_COMM;
    for (int r = 0; r < caller.size; ++r) {
      // Rank r may have sent its last part after the poll above, so one more poll follows.
      if (arrived[static_cast<size_t>(r)] == 0 && post.has_left(caller.link, r) != 0) last = 1;
    }
    std::this_thread::yield();
  }
}

ds_status all_to_all(const void* const* ins, const size_t* in_sizes, void* const* outs,
                     const size_t* out_sizes, void* user_data) {
  CallerRank& caller = rank_of(user_data);
  ++caller.swaps;
  std::vector<ds_plugin_part> sends, receives;
  for (int r = 0; r < caller.size; ++r) {
    sends.push_back({const_cast<void*>(ins[r]), in_sizes[r]});
    receives.push_back({outs[r], out_sizes[r]});
  }
  return move(caller, sends, receives);
}

ds_status all_gather(const void* in, size_t in_size, void* out, void* user_data) {
  CallerRank& caller = rank_of(user_data);
  ++caller.gathers;
  std::vector<ds_plugin_part> sends, receives;
  auto* blocks = static_cast<std::byte*>(out);
  for (int r = 0; r < caller.size; ++r) {
    std::byte* block = blocks + static_cast<size_t>(r) * in_size;
    if (r == caller.rank && block != in) std::memcpy(block, in, in_size);
    sends.push_back({const_cast<void*>(in), in_size});
    receives.push_back({block, in_size});
  }
  return move(caller, sends, receives);
}

ds_status meet(CallerRank& caller, int32_t peer, ds_plugin_part send, ds_plugin_part receive) {
  ++caller.pairs;
  std::vector<ds_plugin_part> sends(static_cast<size_t>(caller.size)), receives(sends.size());
  sends[static_cast<size_t>(peer)] = send;
  receives[static_cast<size_t>(peer)] = receive;
  return move(caller, sends, receives);
}

ds_status send(const void* data, size_t data_size, int32_t to, void* user_data) {
  CallerRank& caller = rank_of(user_data);
  const ds_status status = meet(caller, to, {const_cast<void*>(data), data_size}, {});
  const ds_plugin_transport_table& post = post_transport();
  // Behaves like the strictest library: a send ends only when it has been received, so that a
  // circle of ranks that all send first would deadlock.
  while (status == DS_OK && !is_taken(caller.rank, to)) {
    if (post.aborted_by(caller.link) >= 0 || post.has_left(caller.link, to) != 0)
      return DS_ERROR_COMM;
    std::this_thread::yield();
  }
  return status;
}

ds_status receive(void* data, size_t data_size, int32_t from, void* user_data) {
  return meet(rank_of(user_data), from, {}, {data, data_size});
}

void abort_group(const char* reason, void* user_data) {
  post_transport().abort(rank_of(user_data).link, reason);
}

void destroy(void* user_data) { delete static_cast<CallerRank*>(user_data); }

}  // namespace

CallerRank::CallerRank(int own, int ranks) : rank(own), size(ranks) {
  post_transport().open("", own, ranks, 0, &link);
}

CallerRank::~CallerRank() { post_transport().close(link); }

ds_comm_callbacks CallerRank::callbacks() {
  return {
      sizeof(ds_comm_callbacks), all_gather, all_to_all, send, receive, abort_group, destroy, this};
}

std::unique_ptr<Communicator> make_caller_group(int rank, int size, bool gathers, bool pairs) {
  auto caller = std::make_unique<CallerRank>(rank, size);
  ds_comm_callbacks callbacks = caller->callbacks();
  if (!gathers) callbacks.all_gather = nullptr;
  if (!pairs) callbacks.send = nullptr, callbacks.receive = nullptr;
  auto out = make_called(callbacks, rank, size);
  // The communicator frees the object through destroy().
  caller.release();
  return out;
}

}  // namespace ds::test
