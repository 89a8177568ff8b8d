// The state of the driver in software (fake_cuda.cpp): devices, injected errors, memory, streams
// and events. Both of its sources use it.
#pragma once
#include <cuda.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <shared_mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fake_cuda.h"

namespace ds::fake_driver {

constexpr size_t kGranularity = size_t{2} << 20;

inline int64_t number_from(const char* variable, int64_t otherwise) {
  const char* given = std::getenv(variable);
  return given && *given ? std::atoll(given) : otherwise;
}

// --- devices ---

// A CUdevice is an index into CUDA_VISIBLE_DEVICES or, if that is not set, the number of a GPU.
constexpr int kMostDevices = 72;
inline thread_local std::vector<CUcontext> contexts;

inline std::vector<int> gpus() {
  std::vector<int> out;
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  for (const char* at = visible; at && *at;
       at = std::strchr(at, ',') ? std::strchr(at, ',') + 1 : nullptr)
    out.push_back(std::atoi(at));
  if (!visible) {
    for (int64_t i = 0; i < number_from("DS_FAKE_CUDA_DEVICES", 1); ++i)
      out.push_back(static_cast<int>(i));
  }
  return out;
}

// Returns the calling thread's current device, or -1 if it has no context.
inline int device_now() {
  return contexts.empty() ? -1 : static_cast<int>(reinterpret_cast<uintptr_t>(contexts.back())) - 1;
}

// --- errors ---

struct Injected {
  std::mutex mutex;
  std::string kind;
  int64_t at = 0;
  std::atomic<int64_t> creates{0}, launches{0}, calls{0}, captured{0}, graphs{0}, replays{0},
      marks{0};
  std::atomic<int64_t> enters{0};
  std::atomic<bool> outside{false};
  // A CUresult that every call returns from now on.
  std::atomic<int> sticky{CUDA_SUCCESS};
};
inline Injected& injected() {
  static Injected one;
  return one;
}

inline bool injected_now(const char* kind, int64_t number) {
  Injected& in = injected();
  std::lock_guard lock(in.mutex);
  return in.kind == kind && number == in.at;
}

inline std::atomic<int64_t> objects{0}, bytes_taken[kMostDevices], live_graphs{0};

// Returns the error that every call on a device must return now, or CUDA_SUCCESS.
inline CUresult state_of_call() {
  Injected& in = injected();
  if (in.sticky != CUDA_SUCCESS) return static_cast<CUresult>(in.sticky.load());
  return contexts.empty() ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

// Counts the call and returns state_of_call().
inline CUresult begin_call() {
  Injected& in = injected();
  if (injected_now("lost", ++in.calls)) in.sticky = CUDA_ERROR_DEVICE_UNAVAILABLE;
  return state_of_call();
}
#define BEGIN_CALL() \
  if (CUresult wrong = begin_call(); wrong != CUDA_SUCCESS) return wrong

// --- memory ---

struct Range {
  size_t bytes = 0;
  std::byte* alias = nullptr;
  // The device whose memory is mapped in this range.
  int device = -1;
};
inline std::shared_mutex ranges_mutex;
// Ranges of device addresses and of pinned memory, by first address.
inline std::map<uintptr_t, Range> ranges;
inline std::map<uintptr_t, size_t> pinned;
struct Allocation {
  int file = -1, device = 0;
  size_t bytes = 0;
};

inline bool in_device(const void* address) {
  auto at = reinterpret_cast<uintptr_t>(address);
  std::shared_lock lock(ranges_mutex);
  auto next = ranges.upper_bound(at);
  if (next == ranges.begin()) return false;
  const auto& [begin, range] = *std::prev(next);
  return at < begin + range.bytes;
}

// Returns the device to which the memory belongs, or -1 for other memory.
inline int device_of(uint64_t address) {
  std::shared_lock lock(ranges_mutex);
  auto next = ranges.upper_bound(address);
  if (next == ranges.begin()) return -1;
  const auto& [begin, range] = *std::prev(next);
  return address < begin + range.bytes ? range.device : -1;
}

inline bool is_pinned(const void* address) {
  auto at = reinterpret_cast<uintptr_t>(address);
  std::shared_lock lock(ranges_mutex);
  auto next = pinned.upper_bound(at);
  return next != pinned.begin() && at < std::prev(next)->first + std::prev(next)->second;
}

// --- streams ---

inline std::atomic<int64_t> jitter_us{0};

// Work with its arguments. The parameter is the stream on which it is launched.
using Work = std::function<void(CUstream)>;
struct Capture {
  std::vector<Work> work;
  bool valid = true;
};
inline thread_local Capture* capturing_here = nullptr;
struct Graph {
  std::vector<Work> work;
  std::shared_ptr<std::atomic<int64_t>> running = std::make_shared<std::atomic<int64_t>>(0);
};

// Returns whether the calling thread captures, and then invalidates the capture. Called by
// functions that wait or allocate memory, which a capturing thread must not call.
inline bool forbidden_here() {
  if (capturing_here) capturing_here->valid = false;
  return capturing_here != nullptr;
}

class Stream {
 public:
  std::atomic<Capture*> capture{nullptr};
  Stream() : thread_([this] { loop(); }) {}
  ~Stream() {
    {
      std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void give(std::function<void()> task) {
    {
      std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
      ++given_;
    }
    changed_.notify_all();
  }
  void finish() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ == given_; });
  }

 private:
  void loop() {
    std::minstd_rand random(static_cast<unsigned>(reinterpret_cast<uintptr_t>(this) >> 4));
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return over_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      if (const int64_t us = jitter_us; us > 0 && random() % 4 == 0)
        std::this_thread::sleep_for(std::chrono::microseconds(static_cast<int64_t>(random()) % us));
      task();
      task = nullptr;
      lock.lock();
      ++ended_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  uint64_t given_ = 0, ended_ = 0;
  bool over_ = false;
  std::thread thread_;
};

inline Stream& stream_of(CUstream stream) {
  // This stream ends with the process.
  static auto* usual = new Stream();
  return stream ? *reinterpret_cast<Stream*>(stream) : *usual;
}

// Submits work to a stream. After an error, work is skipped, but waits continue.
inline void give_work(CUstream stream, std::function<void()> body) {
  stream_of(stream).give([body = std::move(body)] {
    if (injected().sticky == CUDA_SUCCESS) body();
  });
}

// Runs the work now or, if the stream captures, in each launch of the graph.
inline CUresult perform(CUstream stream, Work work) {
  Capture* capture = stream_of(stream).capture;
  if (!capture) {
    work(stream);
    return CUDA_SUCCESS;
  }
  if (injected_now("capture", ++injected().captured)) capture->valid = false;
  if (!capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  capture->work.push_back(std::move(work));
  return CUDA_SUCCESS;
}

// Returns whether the stream captures, and then invalidates the capture. Called by functions that
// the plugin must not call on such a stream.
inline bool refuses_capture(CUstream stream) {
  Capture* capture = stream_of(stream).capture;
  if (capture) capture->valid = false;
  return capture != nullptr;
}

// The state of one record of an event.
struct Record {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::chrono::steady_clock::time_point when;
};
struct Event {
  bool timed = false;
  std::mutex mutex;
  std::shared_ptr<Record> latest;
};
inline std::shared_ptr<Record> latest_of(CUevent event) {
  auto* own = reinterpret_cast<Event*>(event);
  std::lock_guard lock(own->mutex);
  return own->latest;
}

// Returns the arguments with device addresses replaced by those of the alias. Sets *foreign if an
// address belongs to another device.
inline std::vector<uint64_t> reached(const void* args, size_t bytes, bool* foreign) {
  std::vector<uint64_t> words((bytes + 7) / 8);
  std::memcpy(words.data(), args, bytes);
  for (uint64_t& word : words) {
    const int device = device_of(word);
    *foreign = *foreign || (device >= 0 && device != device_now());
    word = reinterpret_cast<uint64_t>(fake_cuda_reach(reinterpret_cast<void*>(word)));
  }
  return words;
}

}  // namespace ds::fake_driver
