// Problem: NCCL is the library by which GPUs exchange bytes, but its file has 200 MB, most machines
// have none, and a call of it that waits for a rank that has died waits forever. So it is opened at
// run time, by the few functions that move bytes. Invariant: no call waits for another rank.
// Communicators do not block: a call begins something, and idle() asks whether it has happened;
// whoever waits can do something else meanwhile, and can give up (abort()). Sums are libds's own,
// so every type is bytes here.
//
// The declarations are our own, for a build needs no NCCL: what nccl.h of 2.28 has, and the
// configuration as of 2.14, whose size and version tell the library that it has no more fields.
#include "kernels/cuda/nccl.h"

#include <fmt/core.h>

#include <cstddef>
#include <cstring>
#include <utility>

#include "kernels/cuda/library_function.h"

namespace ds::cuda {
namespace {

enum Result { kSuccess = 0, kInProgress = 7 };
constexpr int kBytes = 1;  // ncclUint8
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

struct Library {
  std::string file;
  int version = 0;
  Entry<int (*)(int*)> ncclGetVersion{"ncclGetVersion"};
  Entry<const char* (*)(int)> ncclGetErrorString{"ncclGetErrorString"};
  Entry<const char* (*)(Communicator)> ncclGetLastError{"ncclGetLastError"};
  Entry<int (*)(UniqueId*)> ncclGetUniqueId{"ncclGetUniqueId"};
  Entry<int (*)(Communicator*, int, UniqueId, int, Configuration*)> ncclCommInitRankConfig{
      "ncclCommInitRankConfig"};
  Entry<int (*)(Communicator, int*)> ncclCommGetAsyncError{"ncclCommGetAsyncError"};
  Entry<int (*)(Communicator)> ncclCommAbort{"ncclCommAbort"};
  Entry<int (*)(Communicator)> ncclCommDestroy{"ncclCommDestroy"};
  Entry<int (*)(const void*, void*, size_t, int, Communicator, CUstream)> ncclAllGather{
      "ncclAllGather"};
  Entry<int (*)(const void*, size_t, int, int, Communicator, CUstream)> ncclSend{"ncclSend"};
  Entry<int (*)(void*, size_t, int, int, Communicator, CUstream)> ncclRecv{"ncclRecv"};
  Entry<int (*)()> ncclGroupStart{"ncclGroupStart"};
  Entry<int (*)()> ncclGroupEnd{"ncclGroupEnd"};

  template <typename Visit>
  void visit(const Visit& visit) {
    visit(ncclGetVersion);
    visit(ncclGetErrorString);
    visit(ncclGetLastError);
    visit(ncclGetUniqueId);
    visit(ncclCommInitRankConfig);
    visit(ncclCommGetAsyncError);
    visit(ncclCommAbort);
    visit(ncclCommDestroy);
    visit(ncclAllGather);
    visit(ncclSend);
    visit(ncclRecv);
    visit(ncclGroupStart);
    visit(ncclGroupEnd);
  }
};

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Library find_library() {
  const OpenedLibrary opened = open_library("DS_NCCL", {"libnccl.so.2", "libnccl.so"}, "NCCL");
  Library library;
  library.file = opened.file;
  const std::string missing = find_functions(library, opened.object);
  if (!library.ncclGetVersion.function ||
      library.ncclGetVersion.function(&library.version) != kSuccess)
    refuse("'{}' is not NCCL: it tells no version", opened.file);
  if (library.version < kLeastVersion) {
    refuse("NCCL '{}' is of version {}, and this plugin needs {} or later", opened.file,
           version_text(library.version), version_text(kLeastVersion));
  }
  if (!missing.empty()) {
    refuse("NCCL '{}' of version {} has no function {}", opened.file, version_text(library.version),
           missing);
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

// Its work has finished, or it was ended.
Link::~Link() {
  if (!communicator_) return;
  Device::Scope scope(*device_, Device::For::ending);
  library().ncclCommDestroy.function(communicator_);
}

void Link::check(int result, const char* call) const {
  if (result == kSuccess || result == kInProgress) return;
  fail(result, call, library().ncclGetLastError.function(communicator_));
}

template <typename Body>
void Link::use(const Body& body) {
  std::lock_guard lock(mutex_);
  if (!communicator_) throw Failure(DS_PLUGIN_FAILED, "the link has been ended");
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

// A group that was begun is ended whatever happens: it is the thread's.
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

// It frees the communicator, too.
void Link::abort() {
  std::lock_guard lock(mutex_);
  if (!communicator_) return;
  Device::Scope scope(*device_, Device::For::ending);
  library().ncclCommAbort.function(std::exchange(communicator_, nullptr));
}

}  // namespace ds::cuda
