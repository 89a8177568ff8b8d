#include "io/async_file.h"

#include <atomic>
#include <utility>

#include "core/base/error.h"
#include "io/transfer.h"

namespace ds {

// Reports the memory access of a transfer to ThreadSanitizer, which cannot see what the kernel
// does.
#ifdef __SANITIZE_THREAD__
extern "C" void __tsan_read_range(void* data, unsigned long bytes);
extern "C" void __tsan_write_range(void* data, unsigned long bytes);
static void show_access(const IoRequest& request) {
  (request.write ? __tsan_read_range : __tsan_write_range)(request.data, request.bytes);
}
#else
static void show_access(const IoRequest&) {}
#endif

struct IoLane::Impl {
  Impl(const std::string& name, size_t chunk_bytes, int depth, Trace* lane_trace)
      : trace(lane_trace), transfer(name, chunk_bytes, depth), tasks(name) {}

  Trace* const trace;
  // Used only on the thread of `tasks`.
  Transfer transfer;
  std::atomic<int64_t> bytes_read{0}, bytes_written{0};
  // The last member, so that its thread is joined before the members that it uses are destroyed.
  TaskQueue tasks;

  void carry_out(const IoRequest& request);
};

// Runs on the lane's thread. An exception in request.ready() becomes the error of the task.
void IoLane::Impl::carry_out(const IoRequest& request) {
  if (request.ready) request.ready();
  int64_t begin = trace ? now_ns() : 0;
  transfer.run(request);
  show_access(request);
  auto bytes = static_cast<int64_t>(request.bytes);
  (request.write ? bytes_written : bytes_read).fetch_add(bytes, std::memory_order_relaxed);
  if (trace) trace->span(request.write ? "write" : "read", request.label, begin, now_ns(), bytes);
}

IoLane::IoLane(std::string name, size_t chunk_bytes, int depth, Trace* trace)
    : impl_(std::make_unique<Impl>(name, chunk_bytes, depth, trace)) {}

IoLane::~IoLane() = default;

namespace {

// Throws if a request is invalid. Called on the submitting thread, where the error still points to
// its origin.
void check(const IoRequest& request, const std::string& lane) {
  require(request.file && request.file->open(), "I/O lane '{}': file of '{}' must be open, got {}",
          lane, request.label, request.file ? "a closed file" : "none");
  require(request.offset >= 0, "{}: offset of '{}' must not be negative, got {}",
          request.file->path(), request.label, request.offset);
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
  check(request, impl_->tasks.name());
  return impl_->tasks.submit(
      [impl = impl_.get(), request = std::move(request)] { impl->carry_out(request); });
}

const TaskQueue& IoLane::tasks() const { return impl_->tasks; }
bool IoLane::done(uint64_t ticket) const { return impl_->tasks.done(ticket); }
void IoLane::wait(uint64_t ticket) { impl_->tasks.wait(ticket); }
void IoLane::finish() noexcept { impl_->tasks.finish(); }
int64_t IoLane::bytes_read() const { return impl_->bytes_read; }
int64_t IoLane::bytes_written() const { return impl_->bytes_written; }

}  // namespace ds
