// Implements in software the part of NCCL that libds_cuda.so calls, for the fake driver; DS_NCCL
// names this library. Ranks are threads or processes of this machine. They share a file of shared
// memory that the unique id names, with a ring buffer from each rank to each other rank. Like NCCL
// with non-blocking communicators, it never waits in a call, refuses two ranks on one GPU, enqueues
// a call in its stream some time after the call, and transfers bytes when the streams of both ranks
// have reached it. A stream whose peer does not come waits until its communicator is aborted.
#include "fake_nccl.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

enum Result {
  kSuccess = 0,
  kSystemError = 2,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7
};
constexpr int kMostRanks = 72;
// Bytes of a ring, for up to 8 ranks and for more ranks.
constexpr uint64_t kLongRing = 64 << 10, kShortRing = 4 << 10;

template <typename Function>
Function of_driver(const char* name) {
  static void* const driver = dlopen(std::getenv("DS_CUDA_DRIVER"), RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Function>(dlsym(driver, name));
}

std::byte* reach(const void* address) {
  static const auto function = of_driver<void* (*)(void*)>("fake_cuda_reach");
  return static_cast<std::byte*>(function(const_cast<void*>(address)));
}

int gpu_now() {
  static const auto function = of_driver<int (*)()>("fake_cuda_gpu");
  return function();
}

bool take(int gpu, int64_t bytes) {
  static const auto function = of_driver<bool (*)(int, int64_t)>("fake_cuda_take");
  return function(gpu, bytes);
}

void enqueue(void* stream, void (*body)(void*), void* data) {
  static const auto function =
      of_driver<void (*)(void*, void (*)(void*), void (*)(void*), void*)>("fake_cuda_enqueue");
  function(
      stream, body, [](void*) {}, data);
}

// --- injected errors and counts of this process ---

struct Injected {
  std::mutex mutex;
  std::string kind;
  int rank = -1;
  int64_t at = 0, seen = 0;
  std::atomic<int64_t> calls{0}, bytes{0}, aborts{0}, misuses{0}, live{0};
  Injected() {
    if (const char* given = std::getenv("DS_FAKE_NCCL_FAIL")) set(given);
  }
  void set(const char* error) {
    std::lock_guard lock(mutex);
    char name[16] = "";
    rank = -1;
    at = seen = 0;
    long long number = 0;
    std::sscanf(error, "%15[a-z]:%d:%lld", name, &rank, &number);
    kind = name;
    at = number;
    calls = bytes = aborts = misuses = 0;
  }
  bool is(const char* which, int of) {
    std::lock_guard lock(mutex);
    return kind == which && rank == of;
  }
  // Returns the error of this call of the rank, or "".
  std::string next(int of) {
    std::lock_guard lock(mutex);
    return kind != "part" && of == rank && ++seen == at ? kind : "";
  }
  bool refuses_part(int of) {
    std::lock_guard lock(mutex);
    return kind == "part" && of == rank && ++seen == at;
  }
};
Injected& injected() {
  static Injected one;
  return one;
}

struct Ring {
  std::atomic<uint64_t> written, read;
};
struct Shared {
  std::atomic<int> joined;
  // 1 + the number of the rank's GPU, or 0 if the rank has not joined.
  std::atomic<int> gpu[kMostRanks];
  // The ring buffer from one rank to another, by [from][to].
  Ring rings[kMostRanks][kMostRanks];
  // The bytes of all rings follow this header.
};

struct Transfer {
  bool sends = false;
  int peer = 0;
  std::byte* data = nullptr;
  size_t bytes = 0, done = 0;
};
struct Batch {
  std::vector<Transfer> transfers;
  // A part that a rank sends to itself.
  const std::byte* own_from = nullptr;
  std::byte* own_to = nullptr;
  size_t own = 0;
  void* stream = nullptr;
  bool wrong = false;
};

struct State : std::enable_shared_from_this<State> {
  int rank = 0, size = 0;
  std::string name, last;
  Shared* shared = nullptr;
  bool joined = false, late = false;
  // The GPU that holds the communicator's buffers, or -1 before they are allocated.
  int taken_of = -1;
  int result = kInProgress;
  int polls = 0;
  // A call that has been made but not yet enqueued in its stream.
  std::unique_ptr<Batch> given;
  std::atomic<bool> aborted{false};
  std::atomic<int> running{0};
  ~State() { munmap(shared, shared_bytes()); }
  uint64_t ring_bytes() const { return size <= 8 ? kLongRing : kShortRing; }
  size_t shared_bytes() const {
    return sizeof(Shared) + static_cast<size_t>(size) * static_cast<size_t>(size) * ring_bytes();
  }
  std::byte* ring_data(int from, int to) const {
    return reinterpret_cast<std::byte*>(shared + 1) +
           static_cast<uint64_t>(from * size + to) * ring_bytes();
  }

  void poll();
  void lose() {
    last = "a peer has closed its connection";
    result = kRemoteError;
  }
  void put_in_stream();
  void move(Batch& batch);
};
struct Communicator {
  std::shared_ptr<State> state;
};
struct Work {
  std::shared_ptr<State> state;
  Batch batch;
};

thread_local std::string last_error;
// The state of the current group: its depth, and the first error.
thread_local int depth = 0, refused = kSuccess;
thread_local std::map<State*, Batch> group;

int refuse(int result, const std::string& reason) {
  last_error = reason;
  return result;
}

void State::poll() {
  if (late && result == kSuccess) lose();
  if (result != kInProgress) return;
  if (!joined) {
    if (shared->joined < size) return;
    joined = true;
    shm_unlink(name.c_str());
    for (int a = 0; a < size; ++a) {
      for (int b = a + 1; b < size; ++b) {
        if (shared->gpu[a] != shared->gpu[b]) continue;
        last = "Duplicate GPU detected : rank " + std::to_string(a) + " and rank " +
               std::to_string(b) + " both on CUDA device " + std::to_string(shared->gpu[a] - 1);
        result = kInvalidUsage;
        return;
      }
    }
    result = kSuccess;
  } else if (++polls > 1) {
    put_in_stream();
  }
}

void State::put_in_stream() {
  result = kSuccess;
  // The enqueued work keeps this object alive until it has ended.
  auto* work = new Work{shared_from_this(), std::move(*given)};
  given.reset();
  ++injected().calls;
  ++running;
  enqueue(
      work->batch.stream,
      [](void* data) {
        std::unique_ptr<Work> own(static_cast<Work*>(data));
        own->state->move(own->batch);
        --own->state->running;
      },
      work);
}

// Runs on the stream's thread.
void State::move(Batch& batch) {
  if (batch.own > 0 && batch.own_to != batch.own_from)
    std::memmove(batch.own_to, batch.own_from, batch.own);
  const uint64_t length = ring_bytes();
  for (;;) {
    bool all = true, moved = false;
    for (Transfer& t : batch.transfers) {
      if (t.done == t.bytes) continue;
      Ring& ring = t.sends ? shared->rings[rank][t.peer] : shared->rings[t.peer][rank];
      const uint64_t written = ring.written, read = ring.read;
      std::byte* const data = t.sends ? ring_data(rank, t.peer) : ring_data(t.peer, rank);
      const uint64_t at = (t.sends ? written : read) % length;
      const uint64_t there = t.sends ? length - (written - read) : written - read;
      const uint64_t n = std::min({there, length - at, static_cast<uint64_t>(t.bytes - t.done)});
      if (t.sends) {
        std::memcpy(data + at, t.data + t.done, n);
        ring.written += n;
      } else {
        std::memcpy(t.data + t.done, data + at, n);
        if (n > 0 && std::exchange(batch.wrong, false)) t.data[t.done] ^= std::byte{1};
        ring.read += n;
        injected().bytes += static_cast<int64_t>(n);
      }
      t.done += n;
      moved = moved || n > 0;
      all = all && t.done == t.bytes;
    }
    if (all || aborted) return;
    if (!moved) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

// Hands the transfers that a thread has collected to a communicator.
int give(State* state, Batch batch) {
  if (state->result != kSuccess) {
    ++injected().misuses;
    return refuse(kInvalidUsage, "a call while the communicator is in progress");
  }
  if (state->taken_of < 0) {
    if (!take(gpu_now(), kFakeNcclBytes))
      return refuse(kSystemError, "Cuda failure 'out of memory'");
    state->taken_of = gpu_now();
  }
  const std::string error = injected().next(state->rank);
  if (error == "call") return refuse(kSystemError, "this call was to fail");
  state->late = error == "late";
  batch.wrong = error == "wrong";
  // Waits for bytes that never arrive.
  if (error == "async" || error == "hang" || state->late)
    batch.transfers = {{false, state->rank, nullptr, 1, 0}}, batch.own = 0;
  state->given = std::make_unique<Batch>(std::move(batch));
  state->polls = 0;
  state->result = kInProgress;
  if (error != "async") return kInProgress;
  state->put_in_stream();
  state->lose();
  return kInProgress;
}

int add(State* state, const Transfer& transfer, void* stream) {
  if (injected().refuses_part(state->rank))
    return refused = refuse(kSystemError, "this part was to fail");
  Batch& batch = group[state];
  batch.stream = stream;
  if (transfer.bytes > 0) batch.transfers.push_back(transfer);
  return kSuccess;
}

}  // namespace

extern "C" {

void fake_nccl_fail(const char* error) { injected().set(error); }

void fake_nccl_counts(int64_t out[4]) {
  const Injected& in = injected();
  out[0] = in.calls;
  out[1] = in.bytes;
  out[2] = in.aborts;
  out[3] = in.misuses;
}

int64_t fake_nccl_live() { return injected().live; }

struct UniqueId {
  char internal[128];
};

int ncclGetVersion(int* version) {
  const char* given = std::getenv("DS_FAKE_NCCL_VERSION");
  *version = given ? std::atoi(given) : 22809;
  return kSuccess;
}

const char* ncclGetErrorString(int result) {
  switch (result) {
    case kSystemError:
      return "unhandled system error";
    case kInvalidUsage:
      return "invalid usage";
    case kRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "an error";
  }
}

const char* ncclGetLastError(Communicator* communicator) {
  if (communicator && !communicator->state->last.empty()) last_error = communicator->state->last;
  return last_error.c_str();
}

int ncclGetUniqueId(UniqueId* id) {
  static std::atomic<int> made{0};
  std::snprintf(id->internal, sizeof id->internal, "/ds_fake_nccl.%d.%d", getpid(), ++made);
  return kSuccess;
}

int ncclCommInitRankConfig(Communicator** out, int size, UniqueId id, int rank,
                           const void* configuration) {
  struct Given {
    size_t size;
    unsigned magic, version;
    int blocking;
  } given{};
  std::memcpy(&given, configuration, sizeof given);
  if (given.magic != 0xcafebeef || given.size < 20 || given.blocking != 0 || size > kMostRanks ||
      rank >= size || gpu_now() < 0)
    return refuse(kInvalidArgument, "this fake has no such communicator");
  auto state = std::make_shared<State>();
  state->rank = rank;
  state->size = size;
  state->name = id.internal;
  const int file = shm_open(id.internal, O_CREAT | O_RDWR, 0600);
  if (file < 0 || ftruncate(file, static_cast<off_t>(state->shared_bytes())) != 0)
    return refuse(kSystemError, "no shared memory");
  void* mapped = mmap(nullptr, state->shared_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (mapped == MAP_FAILED) return refuse(kSystemError, "no shared memory");
  state->shared = static_cast<Shared*>(mapped);
  if (!injected().is("join", rank)) {
    state->shared->gpu[rank] = gpu_now() + 1;
    ++state->shared->joined;
  }
  ++injected().live;
  *out = new Communicator{state};
  return kInProgress;
}

int ncclCommGetAsyncError(Communicator* communicator, int* result) {
  communicator->state->poll();
  *result = communicator->state->result;
  return kSuccess;
}

int end(Communicator* communicator) {
  if (depth > 0) ++injected().misuses;
  shm_unlink(communicator->state->name.c_str());
  if (const int gpu = communicator->state->taken_of; gpu >= 0) take(gpu, -kFakeNcclBytes);
  --injected().live;
  delete communicator;
  return kSuccess;
}

int ncclCommAbort(Communicator* communicator) {
  ++injected().aborts;
  communicator->state->aborted = true;
  return end(communicator);
}

int ncclCommDestroy(Communicator* communicator) {
  if (communicator->state->running > 0) ++injected().misuses;
  return end(communicator);
}

int ncclGroupStart() {
  ++depth;
  return kSuccess;
}

int ncclGroupEnd() {
  if (--depth > 0) return kSuccess;
  auto given = std::exchange(group, {});
  if (std::exchange(refused, kSuccess) != kSuccess) return kInvalidUsage;
  int result = kSuccess;
  for (auto& [state, batch] : given) result = give(state, std::move(batch));
  return result;
}

int ncclSend(const void* data, size_t count, int type, int peer, Communicator* communicator,
             void* stream) {
  if (type != 1 || depth == 0) return refuse(kInvalidArgument, "this fake sends bytes, in a group");
  return add(communicator->state.get(), {true, peer, reach(data), count, 0}, stream);
}

int ncclRecv(void* data, size_t count, int type, int peer, Communicator* communicator,
             void* stream) {
  if (type != 1 || depth == 0)
    return refuse(kInvalidArgument, "this fake receives bytes, in a group");
  return add(communicator->state.get(), {false, peer, reach(data), count, 0}, stream);
}

int ncclAllGather(const void* in, void* out, size_t count, int type, Communicator* communicator,
                  void* stream) {
  if (type != 1) return refuse(kInvalidArgument, "this fake gathers bytes");
  State& state = *communicator->state;
  Batch batch;
  batch.stream = stream;
  batch.own_from = reach(in);
  batch.own_to = reach(out) + static_cast<size_t>(state.rank) * count;
  batch.own = count;
  for (int r = 0; r < state.size; ++r) {
    if (r == state.rank || count == 0) continue;
    batch.transfers.push_back({true, r, reach(in), count, 0});
    batch.transfers.push_back({false, r, reach(out) + static_cast<size_t>(r) * count, count, 0});
  }
  return give(&state, std::move(batch));
}
}
