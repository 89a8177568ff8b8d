// The checks of memory, copies, events and refusals.
#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "core/base/error.h"
#include "core/device/plugin_device.h"
#include "cuda/gpu/check.h"

namespace ds::test {
namespace {

constexpr auto kDevice = Device::Place::device, kHost = Device::Place::host;

std::vector<std::byte> pattern(int64_t bytes, uint64_t seed) {
  std::vector<std::byte> out(static_cast<size_t>(bytes));
  uint64_t x = seed * 2654435761u + 1;
  for (std::byte& b : out) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    b = static_cast<std::byte>(x >> 56);
  }
  return out;
}

// Describes the matrix-product library that the plugin would open, with its version.
std::string products() {
  const char* given = std::getenv("DS_CUDA_BLAS");
  std::string file = given && *given ? given : "libcublasLt.so.13";
  void* object = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!object) return std::string("no cuBLASLt: ") + dlerror();
  auto version = reinterpret_cast<size_t (*)()>(dlsym(object, "cublasLtGetVersion"));
  return version ? fmt::format("{}, version {}", file, version()) : file;
}

void environment(Session& session, Report& report) {
  auto& device = dynamic_cast<PluginDevice&>(session.device());
  const ds_plugin_device_info& info = device.info();
  report.note(fmt::format("{} {} ({}), {}; {}", device.name(), info.name, info.arch, info.driver,
                          products()));
  report.figure("memory MiB", static_cast<double>(info.total >> 20));
  report.figure("free MiB", static_cast<double>(info.free >> 20));
  report.figure("granularity KiB", static_cast<double>(info.granularity >> 10));
  report.equal(session.works(), "a fill and a copy of 64 bytes");
}

void copies(Session& session, Report& report) {
  Device& device = session.device();
  constexpr int64_t kMost = 5 << 20;
  std::shared_ptr<Arena> one = device.make_arena(kDevice, kMost + 64),
                         two = device.make_arena(kDevice, kMost + 64),
                         host = device.make_arena(kHost, kMost + 64);
  for (int64_t bytes :
       {int64_t{1}, int64_t{3}, int64_t{255}, int64_t{4096}, int64_t{65537}, kMost}) {
    for (int64_t shift : {0, 1, 16}) {
      report.attempt(fmt::format("{} bytes from {} on", bytes, shift), [&] {
        std::vector<std::byte> want = pattern(bytes, static_cast<uint64_t>(bytes + shift)),
                               got(static_cast<size_t>(bytes));
        std::copy(want.begin(), want.end(), host->address());
        DeviceQueue& queue = session.queue();
        queue.copy(one->address() + shift, host->address(), bytes);
        queue.copy(two->address(), one->address() + shift, bytes);
        queue.fill(host->address(), 0, bytes);
        queue.copy(host->address(), two->address(), bytes);
        session.finish();
        std::copy(host->address(), host->address() + bytes, got.begin());
        report.equal(got == want, fmt::format("{} bytes from {} on", bytes, shift));
        // This host memory is not pinned.
        device.copy(one->address() + shift, want.data(), bytes);
        device.copy(got.data(), one->address() + shift, bytes);
        report.equal(got == want, fmt::format("{} bytes from {} on, here and now", bytes, shift));
        session.queue().fill(one->address() + shift, 0xc3, bytes);
        session.finish();
        device.copy(got.data(), one->address() + shift, bytes);
        bool same =
            std::all_of(got.begin(), got.end(), [](std::byte b) { return b == std::byte{0xc3}; });
        report.equal(same, fmt::format("a fill of {} bytes from {} on", bytes, shift));
      });
    }
  }
}

void arenas(Session& session, Report& report) {
  Device& device = session.device();
  std::shared_ptr<Arena> arena = device.make_arena(kDevice, 1000);
  std::byte* const before = arena->address();
  std::vector<std::byte> want = pattern(1000, 5), got(8 << 20);
  device.copy(arena->address(), want.data(), 1000);
  arena->grow(8 << 20);
  report.equal(arena->address() == before, "an arena that grows stays where it is");
  device.copy(got.data(), arena->address(), 8 << 20);
  report.equal(std::equal(want.begin(), want.end(), got.begin()),
               "contents of an arena that grows");
  bool zero =
      std::all_of(got.begin() + 1000, got.end(), [](std::byte b) { return b == std::byte{0}; });
  report.equal(zero, "what an arena grows by is zero");
  int64_t free = *device.free_memory();
  arena.reset();
  report.equal(*device.free_memory() >= free, "memory comes back");
}

// Checks that a queue which waits for another queue's event sees everything written before the
// event.
void events(Session& session, Report& report) {
  Device& device = session.device();
  const int64_t bytes = session.small() ? 1 << 16 : 64 << 20;
  std::unique_ptr<DeviceQueue> other = device.make_queue("other");
  std::unique_ptr<Event> written = session.queue().make_event(), read = other->make_event();
  std::shared_ptr<Arena> one = device.make_arena(kDevice, bytes),
                         two = device.make_arena(kDevice, bytes),
                         host = device.make_arena(kHost, 4096);
  int early = 0;
  for (int i = 1; i <= 30; ++i) {
    for (bool waits : {true, false}) {
      const int value = (waits ? 0 : 100) + i;
      session.queue().fill(one->address(), value, bytes);
      session.queue().copy(two->address(), one->address(), bytes);
      session.queue().record(*written);
      if (waits) other->wait(*written);
      other->copy(host->address(), two->address() + bytes - 64, 64);
      other->record(*read);
      read->synchronize();
      const bool right = host->address()[63] == static_cast<std::byte>(value);
      if (waits)
        report.equal(right,
                     fmt::format("round {}: {} and not {}", i, int(host->address()[63]), value));
      if (!waits) early += right ? 0 : 1;
      session.finish();
      report.equal(written->done(), "an event is done when its queue has finished");
    }
  }
  report.figure("too early without a wait, of 30", early);
}

void out_of_memory(Session& session, Report& report) {
  Device& device = session.device();
  const int64_t free = *device.free_memory();
  for (int64_t bytes : {free * 2, free + (int64_t{1} << 30), int64_t{1} << 50}) {
    std::string text;
    ds_status status = DS_OK;
    try {
      device.make_arena(kDevice, bytes);
    } catch (const Error& error) {
      text = error.what();
      status = error.status();
    }
    const std::string label = fmt::format("{} bytes of {} free: '{}'", bytes, free, text);
    report.equal(
        status == DS_ERROR_OUT_OF_MEMORY && text.find('\n') == std::string::npos && !text.empty(),
        label);
    report.equal(session.works(), "the device works after a refusal");
  }
  const int64_t slack = int64_t{64} << 20;
  report.equal(*device.free_memory() >= free - slack, "a refusal takes no memory");
  if (session.small()) return;
  std::shared_ptr<Arena> most = device.make_arena(kDevice, free - (int64_t{2} << 30));
  device.fill(most->address() + most->bytes() - 64, 1, 64);
  report.equal(session.works(), "nearly all memory is taken");
}

void bandwidth(Session& session, Report& report) {
  Device& device = session.device();
  const int64_t bytes = session.small() ? 1 << 20 : int64_t{1} << 30;
  std::shared_ptr<Arena> one = device.make_arena(kDevice, bytes),
                         two = device.make_arena(kDevice, bytes),
                         host = device.make_arena(kHost, bytes);
  const int repeats = session.small() ? 2 : 10;
  auto measure = [&](const char* name, double moved, auto&& body) {
    report.figure(name,
                  moved * static_cast<double>(bytes) / seconds_of(session, repeats, body) * 1e-9);
  };
  DeviceQueue& queue = session.queue();
  measure("device to device GB/s, read and written", 2,
          [&] { queue.copy(two->address(), one->address(), bytes); });
  measure("fill GB/s", 1, [&] { queue.fill(one->address(), 1, bytes); });
  measure("host to device GB/s", 1, [&] { queue.copy(one->address(), host->address(), bytes); });
  measure("device to host GB/s", 1, [&] { queue.copy(host->address(), one->address(), bytes); });
}

}  // namespace

void add_memory_checks(std::vector<Check>& checks) {
  checks.push_back({"A", "env", "device", "a fill and a copy with their bytes", environment});
  checks.push_back(
      {"A", "memory", "copies and fills", "bytes there and back with those sent", copies});
  checks.push_back({"A", "memory", "arenas", "contents while an arena grows", arenas});
  checks.push_back({"A", "memory", "bandwidth", "nothing: figures", bandwidth});
  checks.push_back({"A", "events", "waits between queues",
                    "bytes read after a wait with those written", events});
  checks.push_back({"A", "refusals", "out of memory",
                    "the status and the text, and that all goes on", out_of_memory});
}

}  // namespace ds::test
