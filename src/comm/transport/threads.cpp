#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "comm/transport/transport.h"
#include "core/base/error.h"
#include "core/base/round.h"

// This transport connects ranks that are threads of one process. They find each other by name in a
// process-wide table; their segment is ordinary memory, and they read each other's memory directly.
namespace ds {
namespace {

// A group that is forming or complete: its segment, and which ranks are reading each other's
// memory.
struct Meeting {
  explicit Meeting(int ranks)
      : size(ranks),
        taken(static_cast<size_t>(ranks), false),
        readers(static_cast<size_t>(ranks)),
        withdrawn(static_cast<size_t>(ranks)) {
    size_t bytes = round_up(SharedSegment::bytes(ranks), 4096);
    memory.reset(std::aligned_alloc(4096, bytes));
    if (!memory) raise(DS_ERROR_OUT_OF_MEMORY, "the system refuses {} bytes of staging", bytes);
    std::memset(memory.get(), 0, SharedSegment::head_bytes(ranks));
  }
  int size;
  int joined = 0;
  std::vector<bool> taken;
  std::unique_ptr<void, decltype(&std::free)> memory{nullptr, &std::free};
  // For each rank, the number of ranks that are reading its memory, and whether it has withdrawn
  // that memory. A reader increments the count, then checks whether it may read; the owner
  // withdraws its memory, then waits until the count is zero. All of this is sequentially
  // consistent, so either the owner waits for a reader, or the reader stops.
  std::vector<std::atomic<int>> readers;
  std::vector<std::atomic<bool>> withdrawn;
};

// The groups that are forming, by name. The table is process-wide, because ranks of one process
// cannot find each other in another way. It is never destroyed, because threads may be inside libds
// while the process exits.
struct Lobby {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::shared_ptr<Meeting>> meetings;
};

Lobby& lobby() {
  static Lobby& instance = *new Lobby;
  return instance;
}

class ThreadSharing final : public Sharing {
 public:
  explicit ThreadSharing(std::shared_ptr<Meeting> meeting) : meeting_(std::move(meeting)) {}
  SharedSegment& segment() override { return *static_cast<SharedSegment*>(meeting_->memory.get()); }
  bool alive(int) const override { return true; }
  bool read(int rank, uint64_t from, void* to, size_t bytes) override {
    if (!borrow(rank)) return false;
    if (bytes != 0) std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
    give_back(rank);
    return true;
  }
  void withdraw(int rank) override {
    meeting_->withdrawn[static_cast<size_t>(rank)].store(true);
    await_returns(rank);
  }
  bool one_process() const override { return true; }
  bool borrow(int rank) override {
    meeting_->readers[static_cast<size_t>(rank)].fetch_add(1);
    if (!meeting_->withdrawn[static_cast<size_t>(rank)].load()) return true;
    give_back(rank);
    return false;
  }
  void give_back(int rank) override { meeting_->readers[static_cast<size_t>(rank)].fetch_sub(1); }
  void await_returns(int rank) const override {
    while (meeting_->readers[static_cast<size_t>(rank)].load() != 0) std::this_thread::yield();
  }
  std::unique_ptr<Sharing> make(const std::string& name,
                                const CommOptions& options) const override {
    return share_threads(name, options);
  }

 private:
  std::shared_ptr<Meeting> meeting_;
};

}  // namespace

// Waits until all ranks have joined the group `name`. The last rank to join frees the name for the
// next group.
std::unique_ptr<Sharing> share_threads(const std::string& name, const CommOptions& options) {
  Lobby& hall = lobby();
  std::shared_ptr<Meeting> meeting;
  {
    std::unique_lock lock(hall.mutex);
    std::shared_ptr<Meeting>& open = hall.meetings[name];
    if (!open) open = std::make_shared<Meeting>(options.size);
    meeting = open;
    if (meeting->size != options.size) {
      raise(DS_ERROR_COMM, "threads://{} has {} ranks, but rank {} was started with size {}", name,
            meeting->size, RankNumber(options.rank), options.size);
    }
    size_t rank = static_cast<size_t>(options.rank);
    if (meeting->taken[rank])
      raise(DS_ERROR_COMM, "threads://{}: rank {} has joined already", name,
            RankNumber(options.rank));
    meeting->taken[rank] = true;
    if (++meeting->joined == options.size) {
      hall.meetings.erase(name);
      hall.changed.notify_all();
    } else {
      auto complete = [&] { return meeting->joined == options.size; };
      if (!hall.changed.wait_for(
              lock, std::chrono::milliseconds(std::min<int64_t>(options.join_ms, int64_t{1} << 40)),
              complete)) {
        meeting->taken[rank] = false;
        if (--meeting->joined == 0) hall.meetings.erase(name);
        raise(DS_ERROR_COMM, "threads://{}: {} of {} ranks have joined within {} ms", name,
              meeting->joined + 1, options.size, options.join_ms);
      }
    }
  }
  return std::make_unique<ThreadSharing>(std::move(meeting));
}

}  // namespace ds
