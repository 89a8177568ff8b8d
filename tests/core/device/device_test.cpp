// Tests what every device promises, on the software devices and on the CUDA plugin over a fake
// driver, and what only a separate device promises.
#include "core/device/device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/base/random.h"
#include "core/config/config.h"
#include "core/device/host_device.h"
#include "core/device/named_device.h"
#include "core/device/separate_device.h"
#include "support/fake_cuda.h"

namespace ds {
namespace {

using Place = Device::Place;
constexpr int64_t kMiB = 1 << 20;

using Make = std::function<std::unique_ptr<Device>(uint64_t seed)>;
struct Kind {
  const char* name;
  Make make;
};

const Kind kSoftware[] = {
    {"host", [](uint64_t) { return std::make_unique<HostDevice>(); }},
    {"separate", [](uint64_t) { return std::make_unique<SeparateDevice>(); }},
    {"jitter",
     [](uint64_t seed) { return std::make_unique<SeparateDevice>(Delays{.jitter = seed}); }},
};

// Returns the software devices and, if it is built, the CUDA plugin over a fake driver.
std::vector<Kind> kinds() {
  std::vector<Kind> all(std::begin(kSoftware), std::end(kSoftware));
  if (test::FakeCuda::find())
    all.push_back({"cuda", [](uint64_t) { return make_device("cuda:0"); }});
  return all;
}

class Devices : public testing::TestWithParam<Kind> {
 protected:
  std::unique_ptr<Device> make(uint64_t seed = 1) const { return GetParam().make(seed); }
};
INSTANTIATE_TEST_SUITE_P(All, Devices, testing::ValuesIn(kinds()),
                         [](const auto& info) { return std::string(info.param.name); });

std::string thrown(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

int64_t value_at(const Device& device, const std::byte* at) {
  int64_t value = 0;
  device.copy(&value, at, sizeof value);
  return value;
}

TEST(NamedDevices, EveryDeviceOfAConfigurationCanBeCreated) {
  for (const char* name : kDevices)
    EXPECT_EQ(make_device(name)->shared(), std::string(name) == "cpu") << name;
  EXPECT_EQ(thrown([] { make_device("gpu"); }), "this build has no device 'gpu'");
}

TEST_P(Devices, ArenasKeepTheirBytesWhenTheyGrow) {
  std::unique_ptr<Device> device = make();
  for (Place place : {Place::device, Place::host}) {
    std::shared_ptr<Arena> arena = device->make_arena(place, 3 * kMiB + 100);
    EXPECT_EQ(arena->bytes(), 3 * kMiB + 100);
    EXPECT_EQ(value_at(*device, arena->address() + kMiB), 0);
    device->fill(arena->address() + kMiB, 1, 8);
    int64_t seven = 7;
    device->copy(arena->address() + 8, &seven, sizeof seven);
    std::shared_ptr<Arena> twin = device->copy_arena(place, *arena, 4 * kMiB);
    arena->grow(5 * kMiB);
    for (Arena* a : {arena.get(), twin.get()}) {
      EXPECT_EQ(value_at(*device, a->address() + 8), 7);
      EXPECT_EQ(value_at(*device, a->address() + kMiB), 0x0101010101010101);
      EXPECT_EQ(value_at(*device, a->address() + a->bytes() - 8), 0);
    }
    // The range ends in the second page, whose bytes may change, too.
    arena->discard(kMiB - 1, kMiB + 4097);
    EXPECT_EQ(value_at(*device, arena->address() + 8), 7);
    EXPECT_EQ(value_at(*device, arena->address() + kMiB), 0);
    EXPECT_EQ(value_at(*device, twin->address() + kMiB), 0x0101010101010101);
  }
}

TEST_P(Devices, AnEmptyArenaCanGrow) {
  std::unique_ptr<Device> device = make();
  for (Place place : {Place::device, Place::host}) {
    std::shared_ptr<Arena> empty = device->make_arena(place, 0);
    EXPECT_EQ(empty->address(), nullptr);
    std::shared_ptr<Arena> grown = device->copy_arena(place, *empty, kMiB);
    EXPECT_EQ(value_at(*device, grown->address()), 0);
  }
}

// Writes to `out` the elements of the input plus a constant.
class Add final : public Kernel {
 public:
  void run(const LaunchArgs& args) const override {
    for (int64_t i = 0; i < args.out[0].numel(); ++i)
      args.out[0].as<int64_t>()[i] =
          args.in[0].as<int64_t>()[i] + args.scalars->step + args.leaf * 100;
  }
};

TEST_P(Devices, AQueueKeepsItsOrder) {
  std::unique_ptr<Device> device = make();
  std::shared_ptr<Arena> arena = device->make_arena(Place::device, kMiB),
                         host = device->make_arena(Place::host, kMiB);
  Add add;
  StepScalars scalars;
  scalars.step = 3;
  std::unique_ptr<DeviceQueue> queue = device->make_queue("compute");
  std::unique_ptr<Event> event = queue->make_event();
  EXPECT_TRUE(event->done());
  event->synchronize();
  TensorView from{arena->address(), DS_DTYPE_I64, 1, {4, 1, 1, 1}}, to = from;
  to.data = arena->address() + 4096;
  queue->fill(from.data, 0, from.bytes());
  const std::vector<int64_t> ready(4, 1030);
  if (!queue->runs_host_code()) queue->copy(to.data, ready.data(), to.bytes());
  for (int i = 0; i < 10; ++i) {
    if (queue->runs_host_code())
      queue->launch(add, {.in = {&from, 1}, .out = {&to, 1}, .scalars = &scalars, .leaf = 1});
    queue->copy(from.data, to.data, to.bytes());
    queue->copy(to.data, from.data, to.bytes());
  }
  queue->copy(host->address(), to.data, to.bytes());
  std::atomic<bool> ran = false;
  std::unique_ptr<DeviceQueue> code = device->make_host_queue("host");
  EXPECT_TRUE(code->runs_host_code());
  queue->record(*event);
  code->wait(*event);
  code->run([&] { ran = true; });
  std::unique_ptr<Event> behind = code->make_event();
  code->record(*behind);
  queue->wait(*behind);
  queue->record(*event);
  event->synchronize();
  EXPECT_TRUE(event->done());
  EXPECT_TRUE(ran);
  int64_t last = 0;
  // On every device, this memory is the host's own.
  std::memcpy(&last, host->address() + 24, sizeof last);
  EXPECT_EQ(last, 1030);
}

struct Step {
  size_t queue;
  int64_t from, to, bytes;
  // The byte to fill with, or -1 for a copy.
  int fill;
};

std::vector<Step> draw(uint64_t seed, int64_t room) {
  std::vector<Step> steps;
  RandomStream stream{seed, 0, 0, 1};
  for (uint64_t i = 0; i < 150; ++i) {
    auto words = stream.block(i);
    int64_t bytes = 1 + words[0] % 200, from = words[1] % (room - bytes),
            to = words[2] % (room - bytes);
    bool fill = words[3] % 4 == 0 || std::abs(from - to) < bytes;
    steps.push_back({words[3] / 4 % 3, fill ? to : from, to, bytes,
                     fill ? static_cast<int>(words[3] / 64 % 256) : -1});
  }
  return steps;
}

bool conflict(const Step& a, const Step& b) {
  auto meet = [](int64_t x, int64_t n, int64_t y, int64_t m) { return x < y + m && y < x + n; };
  return meet(a.to, a.bytes, b.to, b.bytes) || meet(a.to, a.bytes, b.from, b.bytes) ||
         meet(a.from, a.bytes, b.to, b.bytes);
}

// Random copies and fills on three queues, with a wait between any two that conflict, must have the
// result of the same steps in sequence.
TEST_P(Devices, WaitsBetweenQueuesGiveTheResultOfOneQueue) {
  constexpr int64_t kRoom = 2000;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    std::unique_ptr<Device> device = make(seed);
    std::shared_ptr<Arena> arena = device->make_arena(Place::device, kRoom);
    std::vector<Step> steps = draw(seed, kRoom);
    std::vector<std::byte> expected(kRoom), got(kRoom);
    {
      std::vector<std::unique_ptr<DeviceQueue>> queues;
      for (const char* name : {"a", "b", "c"}) queues.push_back(device->make_queue(name));
      std::vector<std::unique_ptr<Event>> events;
      for (size_t i = 0; i < steps.size(); ++i) {
        const Step& s = steps[i];
        DeviceQueue& queue = *queues[s.queue];
        for (size_t k = 0; k < i; ++k) {
          if (steps[k].queue != s.queue && conflict(steps[k], s)) queue.wait(*events[k]);
        }
        std::byte *to = arena->address() + s.to, *place = expected.data() + s.to;
        if (s.fill < 0) {
          queue.copy(to, arena->address() + s.from, s.bytes);
          std::memcpy(place, expected.data() + s.from, static_cast<size_t>(s.bytes));
        } else {
          queue.fill(to, s.fill, s.bytes);
          std::memset(place, s.fill, static_cast<size_t>(s.bytes));
        }
        events.push_back(queue.make_event());
        queue.record(*events.back());
      }
      for (const auto& event : events) event->synchronize();
    }
    device->copy(got.data(), arena->address(), kRoom);
    EXPECT_TRUE(got == expected) << "seed " << seed;
  }
}

// A queue records one event repeatedly; each waiter must see the work before its record.
TEST_P(Devices, AWaiterSeesTheWorkBeforeItsRecord) {
  std::unique_ptr<Device> device = make();
  std::shared_ptr<Arena> arena = device->make_arena(Place::device, kMiB);
  std::unique_ptr<DeviceQueue> queue = device->make_queue("compute");
  std::unique_ptr<Event> event = queue->make_event();
  std::vector<std::function<bool(int64_t)>> waiters;
  for (int i = 0; i < 20; ++i) {
    queue->fill(arena->address() + i * 8, i, 8);
    queue->record(*event);
    waiters.push_back(event->waiter());
  }
  for (size_t i = 0; i < waiters.size(); ++i) {
    while (!waiters[i](1000000)) continue;
    EXPECT_EQ(value_at(*device, arena->address() + i * 8) & 0xFF, static_cast<int64_t>(i));
  }
}

TEST(ThreadQueues, AWaiterIgnoresLaterRecords) {
  std::atomic<int> go{0};
  SeparateDevice device;
  std::unique_ptr<DeviceQueue> queue = device.make_queue("compute");
  std::unique_ptr<Event> event = queue->make_event();
  queue->run([] {});
  queue->record(*event);
  std::function<bool(int64_t)> first = event->waiter();
  queue->run([&] { go.wait(0); });
  queue->record(*event);
  // This would loop for ever if the waiter waited for the second record.
  while (!first(1000000)) continue;
  EXPECT_FALSE(event->done());
  go.store(1);
  go.notify_all();
  event->synchronize();
}

// One queue waits in a task, and another one fails: both must throw the error.
TEST(ThreadQueues, AnErrorEndsTheQueuesOfItsDevice) {
  // The atomics outlive the queues, whose tasks read them.
  std::atomic<int> all_given{0}, go{0}, later{0};
  SeparateDevice device, other;
  std::unique_ptr<DeviceQueue> a = device.make_queue("a"), b = device.make_queue("b"),
                               far = other.make_queue("far");
  std::unique_ptr<Event> stuck = a->make_event(), event = b->make_event();
  a->run([&] { go.wait(0); });
  a->record(*stuck);
  b->run([&] {
    // All work must be submitted first, because a queue that has failed accepts no more.
    all_given.wait(0);
    raise(DS_ERROR_INTERNAL, "the cause");
  });
  b->record(*event);
  b->run([&] { ++later; });
  all_given.store(1);
  all_given.notify_all();
  EXPECT_EQ(thrown([&] { stuck->synchronize(); }), "the cause");
  EXPECT_EQ(thrown([&] { event->synchronize(); }), "the cause");
  EXPECT_EQ(thrown([&] { b->run([] {}); }), "the cause");
  EXPECT_EQ(thrown([&] { far->run([] {}); }), "");
  go.store(1);
  go.notify_all();
  EXPECT_EQ(later.load(), 0);
}

class Named final : public WorkOwner {
 public:
  void worked(size_t number, int64_t begin_ns, int64_t end_ns) override {
    numbers.push_back(number);
    EXPECT_LE(begin_ns, end_ns);
  }
  void failed(size_t number, const std::exception& error) override {
    raise(DS_ERROR_INTERNAL, "work {}: {}", number, error.what());
  }
  void idle(size_t) override {}
  std::vector<size_t> numbers;
};

TEST(ThreadQueues, ErrorsNameTheOwnerOfTheirWork) {
  Named owner;
  SeparateDevice device;
  std::unique_ptr<DeviceQueue> queue = device.make_queue("compute");
  queue->attribute(&owner, 4);
  queue->run([] {});
  queue->attribute(nullptr, 0);
  queue->run([] {});
  queue->attribute(&owner, 5);
  queue->run([] { raise(DS_ERROR_INTERNAL, "broken"); });
  std::unique_ptr<Event> event = queue->make_event();
  queue->record(*event);
  EXPECT_EQ(thrown([&] { event->synchronize(); }), "work 5: broken");
  EXPECT_EQ(owner.numbers, std::vector<size_t>{4});
}

// The tasks of the two queues run at the same time.
TEST(ThreadQueues, WorkOfTwoQueuesOverlaps) {
  std::atomic<int> here{0}, met{0};
  SeparateDevice device({.work_us = 20000});
  std::unique_ptr<DeviceQueue> a = device.make_queue("a"), b = device.make_queue("b");
  for (DeviceQueue* queue : {a.get(), b.get()}) {
    queue->run([&] {
      here.fetch_add(1);
      here.notify_all();
      for (int seen = here.load(); seen < 2; seen = here.load())
        // This would hang if both queues ran on one thread.
        here.wait(seen);
      met.fetch_add(1);
    });
  }
  a.reset(), b.reset();
  EXPECT_EQ(met.load(), 2);
}

TEST(SeparateDevice, HostCodeCannotAccessItsMemory) {
  SeparateDevice device;
  std::shared_ptr<Arena> arena = device.make_arena(Place::device, kMiB);
  EXPECT_FALSE(device.shared());
  auto* alias = static_cast<std::byte*>(device.reach(arena->address() + 5));
  EXPECT_NE(alias, arena->address() + 5);
  *alias = std::byte{9};
  std::byte out{};
  device.copy(&out, arena->address() + 5, 1);
  EXPECT_EQ(out, std::byte{9});
  int of_the_host = 0;
  EXPECT_EQ(device.reach(&of_the_host), &of_the_host);
}

TEST(SeparateDeviceDeathTest, AccessToItsAddressesFaults) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  SeparateDevice device;
  std::shared_ptr<Arena> arena = device.make_arena(Place::device, kMiB);
  const volatile std::byte* at = arena->address();
  EXPECT_DEATH(static_cast<void>(at[100]), "");
  EXPECT_DEATH(std::memset(arena->address(), 0, 8), "");
}

}  // namespace
}  // namespace ds
