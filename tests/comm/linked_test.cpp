#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "comm/transport/transport.h"
#include "core/base/error.h"
#include "support/spawn.h"

// What a group over a plugin does when a peer fails. The transport is a post office in this process, so that
// a test decides what arrives; real messages are tested by mpi.sh.
struct ds_plugin_link {
  int rank = 0;
  std::vector<ds_plugin_part> wanted;
  std::string error;
};

namespace ds {
namespace {

struct Office {
  std::mutex mutex;
  int size = 2;
  std::map<std::pair<int, int>, std::deque<std::vector<char>>> letters;  // (from, to)
  std::vector<char> left = std::vector<char>(8);
  int aborted_by = -1;
  std::string reason;
  bool lively = false;  // every poll sees signs of life of everyone
  uint64_t beats = 0;
};
Office* office = nullptr;

int32_t open(int32_t rank, int32_t size, ds_plugin_link** out) {
  std::lock_guard lock(office->mutex);
  office->size = size;
  *out = new ds_plugin_link{rank, {}, {}};
  return 0;
}

int32_t start(ds_plugin_link* link, const ds_plugin_part* sends, const ds_plugin_part* receives) {
  std::lock_guard lock(office->mutex);
  for (int r = 0; r < office->size; ++r) {
    if (r == link->rank || sends[r].size == 0) continue;
    const char* data = static_cast<const char*>(sends[r].data);
    office->letters[{link->rank, r}].emplace_back(data, data + sends[r].size);
  }
  link->wanted.assign(receives, receives + office->size);
  link->wanted[static_cast<size_t>(link->rank)].size = 0;
  return 0;
}

int32_t poll(ds_plugin_link* link, int32_t* out_done, uint8_t* arrived, uint64_t* beats) {
  std::lock_guard lock(office->mutex);
  if (office->lively) ++office->beats;
  *out_done = 1;
  for (size_t r = 0; r < link->wanted.size(); ++r) {
    ds_plugin_part& part = link->wanted[r];
    auto& letters = office->letters[{static_cast<int>(r), link->rank}];
    if (part.size != 0 && !letters.empty()) {
      std::memcpy(part.data, letters.front().data(), part.size);
      letters.pop_front();
      part.size = 0;
    }
    arrived[r] = part.size == 0;
    beats[r] = office->beats;
    if (part.size != 0) *out_done = 0;
  }
  return 0;
}

void beat(ds_plugin_link*) {}

void abort_group(ds_plugin_link* link, const char* reason) {
  std::lock_guard lock(office->mutex);
  if (office->aborted_by >= 0) return;
  office->aborted_by = link->rank;
  office->reason = reason;
}

int32_t aborted_by(ds_plugin_link* link) {
  std::lock_guard lock(office->mutex);
  return office->aborted_by == link->rank ? -1 : office->aborted_by;
}

int32_t has_left(ds_plugin_link*, int32_t rank) {
  std::lock_guard lock(office->mutex);
  return office->left[static_cast<size_t>(rank)];
}

const char* message(ds_plugin_link*) { return office->reason.c_str(); }

void close(ds_plugin_link* link) {
  std::lock_guard lock(office->mutex);
  office->left[static_cast<size_t>(link->rank)] = 1;
  delete link;
}

const ds_plugin_transport_table kPost = {sizeof(ds_plugin_transport_table),
                                         "post",
                                         DS_PLUGIN_BUILD,
                                         open,
                                         start,
                                         poll,
                                         beat,
                                         abort_group,
                                         aborted_by,
                                         has_left,
                                         message,
                                         close};

class Linked : public testing::Test {
 protected:
  void SetUp() override { office = &office_; }
  void TearDown() override { office = nullptr; }

  // Runs body(communicator) on two ranks.
  static void on_both(int64_t timeout_ms, const std::function<void(Communicator&)>& body) {
    test::spawn_threads(2, [&](int rank) {
      auto comm = make_linked(kPost, {.rank = rank, .size = 2, .timeout_ms = timeout_ms});
      body(*comm);
    });
  }

  static std::string error_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), DS_ERROR_COMM);
      return error.what();
    }
    return "no error";
  }

  Office office_;
};

TEST_F(Linked, AStandingPeerIsNamed) {
  std::atomic<bool> done{false};
  on_both(100, [&](Communicator& comm) {
    if (comm.rank() == 1) {
      while (!done) std::this_thread::yield();
      return;
    }
    EXPECT_EQ(error_of([&] { comm.barrier("h.3"); }),
              "rank 0 in barrier 'h.3': rank 1 has made no progress for 100 ms");
    EXPECT_NE(error_of([&] { comm.barrier("again"); }), "no error");
    done = true;
  });
}

TEST_F(Linked, ASlowPeerThatWorksIsWaitedFor) {
  office_.lively = true;
  std::atomic<bool> waited{false};
  on_both(50, [&](Communicator& comm) {
    if (comm.rank() == 0) {
      std::thread clock([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        waited = true;
      });
      comm.barrier("long");
      clock.join();
    } else {
      while (!waited) std::this_thread::yield();
      comm.barrier("long");
    }
  });
}

TEST_F(Linked, APeerThatLeftIsNamed) {
  std::string why;
  on_both(60000, [&](Communicator& comm) {
    if (comm.rank() == 0) why = error_of([&] { comm.barrier("end"); });
  });
  EXPECT_EQ(why, "rank 0 in barrier 'end': rank 1 has left the group");
}

TEST_F(Linked, AnAbortReachesTheOthersWithItsReason) {
  on_both(60000, [&](Communicator& comm) {
    if (comm.rank() == 1) comm.abort("the disk is full");
    std::string why = error_of([&] { comm.barrier("next"); });
    EXPECT_NE(why.find("the disk is full"), std::string::npos) << why;
    bool told = why.find("ended by rank 1") != std::string::npos;
    EXPECT_EQ(told, comm.rank() == 0) << why;
  });
}

TEST_F(Linked, DifferentCallsAreNamedOnBothRanks) {
  on_both(60000, [&](Communicator& comm) {
    char in[8] = {}, out[16];
    std::string why = error_of([&] {
      if (comm.rank() == 0) {
        comm.all_gather(in, out, 8, "w");
      } else {
        comm.barrier("w");
      }
    });
    for (const char* part : {"all_gather 'w' of 8 bytes", "barrier 'w' of 0 bytes"}) {
      EXPECT_NE(why.find(part), std::string::npos) << why;
    }
  });
}

}  // namespace
}  // namespace ds
