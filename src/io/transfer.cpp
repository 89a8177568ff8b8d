// Moves the bytes of a request with libaio.
//
// Invariant. A chunk is in exactly one place: in free_, in waiting_, or in flight in the kernel,
// where in_flight_ counts it. No exception leaves run() while a chunk is in flight, since the
// kernel could then write to memory that the caller has freed.
// Algorithm. Each free chunk gets the next bytes of the request and joins waiting_, which is
// submitted to the kernel. A completion frees its chunk or, after a short transfer, prepares the
// remainder of the chunk again. If the kernel accepts no chunk and none is in flight, one chunk is
// moved with pread or pwrite, so there is always progress.
#include "io/transfer.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <system_error>

#include "core/base/error.h"
#include "core/base/interrupted.h"
#include "core/base/log.h"
#include "core/base/round.h"

namespace ds {
namespace {

[[noreturn]] void refuse(const IoRequest& request, std::string_view reason,
                         ds_status status = DS_ERROR_IO) {
  raise(status, "{}: {} of {} bytes at offset {} ({}): {}", request.file->path(),
        request.write ? "write" : "read", request.bytes, request.offset, request.label, reason);
}

[[noreturn]] void refuse(const IoRequest& request, int error) {
  refuse(request, std::generic_category().message(error));
}

// Throws the error of a transfer that moved no bytes: the file has ended, which File::read()
// refuses with the same status, or the disk is full.
[[noreturn]] void refuse_short(const IoRequest& request) {
  if (request.write) refuse(request, ENOSPC);
  refuse(request, fmt::format("the file has only {} bytes", request.file->size()),
         DS_ERROR_CORRUPT);
}

}  // namespace

Transfer::Transfer(std::string_view name, size_t chunk_bytes, int depth)
    : chunk_bytes_(round_up(chunk_bytes, 4096)) {
  require(chunk_bytes > 0 && chunk_bytes <= (size_t{1} << 30),
          "chunk_bytes of I/O lane '{}' must be from 1 to 2^30, got {}", name, chunk_bytes);
  require(depth > 0, "depth of I/O lane '{}' must be positive, got {}", name, depth);
  if (depth == 1) return;
  int code = io_setup(depth, &context_);
  if (code < 0) {
    context_ = nullptr;
    log_line(LogLevel::warning,
             fmt::format("I/O lane '{}': io_setup({}): {}; using pread and pwrite", name, depth,
                         std::generic_category().message(-code)));
    return;
  }
  chunks_.resize(static_cast<size_t>(depth));
  events_.resize(static_cast<size_t>(depth));
}

Transfer::~Transfer() {
  if (context_) io_destroy(context_);
}

void Transfer::run(const IoRequest& request) {
  if (!context_) return run_blocking(request);
  free_.clear();
  for (Chunk& chunk : chunks_) free_.push_back(&chunk);
  waiting_.clear();
  size_t next = 0;
  try {
    while (next < request.bytes || in_flight_ > 0 || !waiting_.empty()) {
      while (next < request.bytes && !free_.empty()) {
        Chunk& chunk = *free_.back();
        free_.pop_back();
        chunk.begin = next;
        chunk.bytes = std::min(chunk_bytes_, request.bytes - next);
        next += chunk.bytes;
        prepare(request, chunk);
      }
      if (!submit() && in_flight_ == 0) {
        // No completion will make room in the kernel's queue, so this chunk is moved with pread or
        // pwrite.
        auto* chunk = static_cast<Chunk*>(waiting_.back()->data);
        waiting_.pop_back();
        blocking(request, chunk->begin, chunk->bytes);
        free_.push_back(chunk);
        continue;
      }
      if (in_flight_ > 0) reap(request);
    }
  } catch (const std::system_error& error) {
    drain();
    refuse(request, error.code().value());
  } catch (...) {
    drain();
    throw;
  }
}

void Transfer::prepare(const IoRequest& request, Chunk& chunk) {
  char* data = static_cast<char*>(request.data) + chunk.begin;
  auto offset = request.offset + static_cast<int64_t>(chunk.begin);
  if (request.write) {
    io_prep_pwrite(&chunk.control, request.file->fd(), data, chunk.bytes, offset);
  } else {
    io_prep_pread(&chunk.control, request.file->fd(), data, chunk.bytes, offset);
  }
  chunk.control.data = &chunk;
  waiting_.push_back(&chunk.control);
}

bool Transfer::submit() {
  while (!waiting_.empty()) {
    int n = io_submit(context_, static_cast<long>(waiting_.size()), waiting_.data());
    if (n == -EINTR) continue;
    // EINVAL comes from a file without asynchronous I/O (some devices), or from arguments that
    // pread also refuses; ENOSYS and EPERM come from a sandbox that allows only io_setup.
    if (n == -EAGAIN || n == -EINVAL || n == -ENOSYS || n == -EPERM || n == 0) return false;
    if (n < 0) throw std::system_error(-n, std::generic_category());
    waiting_.erase(waiting_.begin(), waiting_.begin() + n);
    in_flight_ += static_cast<size_t>(n);
  }
  return true;
}

void Transfer::reap(const IoRequest& request) {
  int n = io_getevents(context_, 1, static_cast<long>(in_flight_), events_.data(), nullptr);
  if (n == -EINTR) return;
  if (n < 0) throw std::system_error(-n, std::generic_category());
  in_flight_ -= static_cast<size_t>(n);
  for (int i = 0; i < n; ++i) {
    auto& chunk = *static_cast<Chunk*>(events_[static_cast<size_t>(i)].data);
    auto moved = static_cast<int64_t>(events_[static_cast<size_t>(i)].res);
    if (moved < 0) refuse(request, static_cast<int>(-moved));
    if (moved == 0) refuse_short(request);
    chunk.begin += static_cast<size_t>(moved);
    chunk.bytes -= std::min(chunk.bytes, static_cast<size_t>(moved));
    if (chunk.bytes == 0) {
      free_.push_back(&chunk);
    } else if (request.file->direct() && moved % 4096 != 0) {
      // The remainder would be misaligned for O_DIRECT. The file or the disk has ended here.
      refuse_short(request);
    } else {
      prepare(request, chunk);
    }
  }
}

void Transfer::drain() {
  while (in_flight_ > 0) {
    int n = io_getevents(context_, 1, static_cast<long>(in_flight_), events_.data(), nullptr);
    if (n > 0) in_flight_ -= static_cast<size_t>(n);
    if (n < 0 && n != -EINTR) {
      // The context is unusable. Destroying it waits for the chunks in flight.
      io_destroy(context_);
      context_ = nullptr;
      in_flight_ = 0;
    }
  }
}

void Transfer::run_blocking(const IoRequest& request) {
  for (size_t begin = 0; begin < request.bytes; begin += chunk_bytes_) {
    blocking(request, begin, std::min(chunk_bytes_, request.bytes - begin));
  }
}

void Transfer::blocking(const IoRequest& request, size_t begin, size_t bytes) const {
  while (bytes > 0) {
    char* data = static_cast<char*>(request.data) + begin;
    auto offset = request.offset + static_cast<int64_t>(begin);
    ssize_t n = request.write ? ::pwrite(request.file->fd(), data, bytes, offset)
                              : ::pread(request.file->fd(), data, bytes, offset);
    if (is_interrupted(n)) continue;
    if (n < 0) refuse(request, errno);
    if (n == 0) refuse_short(request);
    begin += static_cast<size_t>(n);
    bytes -= static_cast<size_t>(n);
    if (bytes > 0 && request.file->direct() && n % 4096 != 0) refuse_short(request);
  }
}

}  // namespace ds
