// Problem: NCCL is how GPUs exchange bytes. But its library is 200 MB large, most machines lack it,
// and a blocking call that waits for a dead rank never returns. So it is opened at run time, in its
// non-blocking mode, and only the few functions that move bytes are used.
//
// Invariant: no call waits for another rank. Communicators are non-blocking: a call begins an
// operation, and idle() returns whether it is complete. Meanwhile the thread can do other work, and
// can give up (abort()). Sums are computed by libds, so NCCL only sees bytes.
//
// A build must not need NCCL, so its functions are declared here, as in nccl.h 2.28 but with the
// configuration struct of 2.14, whose size and version tell the library that later fields are
// absent.
#include "kernels/cuda/nccl.h"

#include <fmt/core.h>

#include <cstddef>
#include <cstring>
#include <utility>

#include "kernels/cuda/library_function.h"

namespace ds::cuda {
namespace {

enum Result { kSuccess = 0, kInProgress = 7 };
// The data type ncclUint8.
constexpr int kBytes = 1;
constexpr int kLeastVersion = 21400;
using Communicator = void*;

struct UniqueId {
  char internal[128];
};

struct Configuration {
  size_t size = sizeof(Configuration);
  unsigned magic = 0xcafebeef, version = kLeastVersion;
  int blocking = 0;
};

void check_nccl(int result, const char* call);

template <typename Function>
using Entry = LibraryFunction<check_nccl, Function>;

struct Library : OpenedLibrary {
  Library() : OpenedLibrary("DS_NCCL", {"libnccl.so.2", "libnccl.so"}, "NCCL") {}
  int version = 0;
  Entry<int (*)(int*)> ncclGetVersion{*this, "ncclGetVersion"};
  Entry<const char* (*)(int)> ncclGetErrorString{*this, "ncclGetErrorString"};
  Entry<const char* (*)(Communicator)> ncclGetLastError{*this, "ncclGetLastError"};
  Entry<int (*)(UniqueId*)> ncclGetUniqueId{*this, "ncclGetUniqueId"};
  Entry<int (*)(Communicator*, int, UniqueId, int, Configuration*)> ncclCommInitRankConfig{
      *this, "ncclCommInitRankConfig"};
  Entry<int (*)(Communicator, int*)> ncclCommGetAsyncError{*this, "ncclCommGetAsyncError"};
  Entry<int (*)(Communicator)> ncclCommAbort{*this, "ncclCommAbort"};
  Entry<int (*)(Communicator)> ncclCommDestroy{*this, "ncclCommDestroy"};
  Entry<int (*)(const void*, void*, size_t, int, Communicator, CUstream)> ncclAllGather{
      *this, "ncclAllGather"};
  Entry<int (*)(const void*, size_t, int, int, Communicator, CUstream)> ncclSend{*this, "ncclSend"};
  Entry<int (*)(void*, size_t, int, int, Communicator, CUstream)> ncclRecv{*this, "ncclRecv"};
  Entry<int (*)()> ncclGroupStart{*this, "ncclGroupStart"};
  Entry<int (*)()> ncclGroupEnd{*this, "ncclGroupEnd"};
};

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Library find_library() {
  Library library;
  if (!library.ncclGetVersion.function ||
      library.ncclGetVersion.function(&library.version) != kSuccess)
    refuse("'{}' is not NCCL: it reports no version", library.file);
  if (library.version < kLeastVersion) {
    refuse("NCCL '{}' is of version {}, and this plugin needs {} or later", library.file,
           version_text(library.version), version_text(kLeastVersion));
  }
  if (!library.missing.empty()) {
    refuse("NCCL '{}' of version {} has no function {}", library.file,
           version_text(library.version), library.missing);
  }
  return library;
}

const Library& library() {
  static const Library opened = find_library();
  return opened;
}

void fail(int result, const char* call, const char* more) {
  throw Failure(DS_PLUGIN_FAILED,
                fmt::format("{}: {}{}{}", call, library().ncclGetErrorString.function(result),
                            more && *more ? ": " : "", more ? more : ""));
}

void check_nccl(int result, const char* call) {
  if (result != kSuccess) fail(result, call, library().ncclGetLastError.function(nullptr));
}

}  // namespace

std::string nccl_name() { return "NCCL " + version_text(library().version); }

NcclId make_nccl_id(const Device& device) {
  Device::Scope scope(device);
  UniqueId made{};
  library().ncclGetUniqueId(&made);
  NcclId id{};
  std::memcpy(id.data(), made.internal, id.size());
  return id;
}

Link::Link(std::shared_ptr<Device> device, const NcclId& id, int rank, int size)
    : device_(std::move(device)), rank_(rank), size_(size) {
  Device::Scope scope(*device_);
  UniqueId unique{};
  std::memcpy(unique.internal, id.data(), id.size());
  Configuration configuration;
  check(
      library().ncclCommInitRankConfig.function(&communicator_, size, unique, rank, &configuration),
      "ncclCommInitRankConfig");
}

// The owner must have waited for the link's work or called abort(), so nothing is pending.
Link::~Link() {
  if (!communicator_) return;
  Device::Scope scope(*device_, Device::For::ending);
  library().ncclCommDestroy.function(communicator_);
}

void Link::check(int result, const char* call) const {
  if (result == kSuccess || result == kInProgress) return;
  fail(result, call, library().ncclGetLastError.function(communicator_));
}

// Calls body() with the device's context current, while no other thread can use or end the
// communicator. Throws if the communicator has been ended.
template <typename Body>
void Link::use(const Body& body) {
  std::lock_guard lock(mutex_);
  if (!communicator_) throw Failure(DS_PLUGIN_FAILED, "the link has ended");
  Device::Scope scope(*device_);
  body();
}

bool Link::idle() {
  int state = kSuccess;
  use([&] {
    check(library().ncclCommGetAsyncError.function(communicator_, &state), "ncclCommGetAsyncError");
    check(state, "NCCL");
  });
  return state == kSuccess;
}

void Link::gather(const DriverStream& stream, const void* in, void* out, int64_t bytes) {
  use([&] {
    check(library().ncclAllGather.function(in, out, static_cast<size_t>(bytes), kBytes,
                                           communicator_, stream.handle()),
          "ncclAllGather");
  });
}

// The sends and receives of an NCCL group run concurrently, so their order cannot make ranks block
// each other. A group that this thread has started must be ended even after an error, so the first
// error is kept and thrown at the end.
void Link::swap(const DriverStream& stream, const ds_plugin_part* sends,
                const ds_plugin_part* receives) {
  use([&] {
    int first_bad = kSuccess;
    const char* call = "ncclGroupEnd";
    auto note = [&](int result, const char* name) {
      if (first_bad != kSuccess || result == kSuccess || result == kInProgress) return;
      first_bad = result;
      call = name;
    };
    library().ncclGroupStart();
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      const ds_plugin_part &to = sends[r], &from = receives[r];
      if (to.size > 0)
        note(library().ncclSend.function(to.data, to.size, kBytes, r, communicator_,
                                         stream.handle()),
             "ncclSend");
      if (from.size > 0)
        note(library().ncclRecv.function(from.data, from.size, kBytes, r, communicator_,
                                         stream.handle()),
             "ncclRecv");
    }
    note(library().ncclGroupEnd.function(), "ncclGroupEnd");
    check(first_bad, call);
  });
}

// ncclCommAbort also frees the communicator, so the destructor has nothing to do.
void Link::abort() {
  std::lock_guard lock(mutex_);
  if (!communicator_) return;
  Device::Scope scope(*device_, Device::For::ending);
  library().ncclCommAbort.function(std::exchange(communicator_, nullptr));
}

}  // namespace ds::cuda
