#include "io/async_file.h"

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "core/base/error.h"
#include "core/base/signals.h"
#include "io/transfer.h"

namespace ds {

struct IoLane::Impl {
  Impl(std::string lane_name, size_t chunk_bytes, int depth, Trace* lane_trace)
      : name(std::move(lane_name)), trace(lane_trace), transfer(name, chunk_bytes, depth) {}

  const std::string name;
  Trace* const trace;
  Transfer transfer;  // used by the thread only
  std::atomic<int64_t> bytes_read{0}, bytes_written{0};

  std::mutex mutex;
  std::condition_variable submitted, finished;
  std::deque<IoRequest> queue;
  uint64_t last_ticket = 0;  // handed out
  uint64_t completed = 0;    // all tickets up to it
  std::exception_ptr error;  // set once
  bool stop = false;
  std::thread thread;  // last: starts when everything else exists

  void loop();
  void carry_out(const IoRequest& request);
};

void IoLane::Impl::carry_out(const IoRequest& request) {
  if (request.ready) request.ready();
  int64_t begin = trace ? now_ns() : 0;
  transfer.run(request);
  auto bytes = static_cast<int64_t>(request.bytes);
  (request.write ? bytes_written : bytes_read) += bytes;
  if (trace) trace->span(request.write ? "write" : "read", request.label, begin, now_ns(), bytes);
}

void IoLane::Impl::loop() {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
  std::unique_lock lock(mutex);
  while (true) {
    submitted.wait(lock, [&] { return stop || !queue.empty(); });
    if (queue.empty()) return;
    IoRequest request = std::move(queue.front());
    queue.pop_front();
    lock.unlock();
    std::exception_ptr failure;
    try {
      carry_out(request);
    } catch (...) {
      failure = std::current_exception();
    }
    request = {};  // what `ready` holds is released before the completion is seen
    lock.lock();
    if (failure) {
      error = failure;
      queue.clear();
    } else {
      ++completed;
    }
    finished.notify_all();
  }
}

IoLane::IoLane(std::string name, size_t chunk_bytes, int depth, Trace* trace)
    : impl_(std::make_unique<Impl>(std::move(name), chunk_bytes, depth, trace)) {
  SignalsBlocked blocked(SignalsBlocked::Which::all);  // also of the thread's writes, and for its life
  impl_->thread = std::thread([impl = impl_.get()] { impl->loop(); });
}

IoLane::~IoLane() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
  }
  impl_->submitted.notify_all();
  impl_->thread.join();
}

namespace {

void check(const IoRequest& request, const std::string& lane) {
  require(request.file && request.file->open(), "I/O lane '{}': file of '{}' must be open, got {}", lane,
          request.label, request.file ? "a closed file" : "none");
  require(request.offset >= 0, "{}: offset of '{}' must not be negative, got {}", request.file->path(),
          request.label, request.offset);
  require(request.data || request.bytes == 0, "{}: data of '{}' must not be null for {} bytes",
          request.file->path(), request.label, request.bytes);
  if (!request.file->direct()) return;
  auto address = reinterpret_cast<uintptr_t>(request.data);
  require(request.offset % 4096 == 0 && request.bytes % 4096 == 0 && address % 4096 == 0,
          "{}: O_DIRECT needs multiples of 4096 for '{}', got offset {}, {} bytes, address {:#x}",
          request.file->path(), request.label, request.offset, request.bytes, address);
}

}  // namespace

uint64_t IoLane::submit(IoRequest request) {
  check(request, impl_->name);
  std::lock_guard lock(impl_->mutex);
  if (impl_->error) std::rethrow_exception(impl_->error);
  impl_->queue.push_back(std::move(request));
  impl_->submitted.notify_one();
  return ++impl_->last_ticket;
}

bool IoLane::done(uint64_t ticket) const {
  std::lock_guard lock(impl_->mutex);
  if (ticket > impl_->completed && impl_->error) std::rethrow_exception(impl_->error);
  return ticket <= impl_->completed;
}

void IoLane::wait(uint64_t ticket) {
  std::unique_lock lock(impl_->mutex);
  require(ticket <= impl_->last_ticket, "I/O lane '{}': ticket must be at most {}, got {}", impl_->name,
          impl_->last_ticket, ticket);
  impl_->finished.wait(lock, [&] { return ticket <= impl_->completed || impl_->error; });
  if (ticket > impl_->completed) std::rethrow_exception(impl_->error);
}

void IoLane::finish() noexcept {
  std::unique_lock lock(impl_->mutex);
  impl_->finished.wait(lock, [&] { return impl_->completed == impl_->last_ticket || impl_->error; });
}

int64_t IoLane::bytes_read() const { return impl_->bytes_read; }
int64_t IoLane::bytes_written() const { return impl_->bytes_written; }

}  // namespace ds
