#include "comm/communicator_group.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "comm/device_sum.h"
#include "core/base/random.h"
#include "core/device/device.h"
#include "core/device/host_device.h"
#include "core/device/separate_device.h"
#include "kernels/ref/ref.h"
#include "support/ranks.h"

namespace ds::test {
namespace {

constexpr int64_t kCount = 37;

std::vector<float> drawn(uint32_t rank, int64_t count) {
  std::vector<float> out;
  for (int64_t i = 0; i < count; ++i)
    out.push_back(uniform01(RandomStream{5, 0, rank, 1}.block(static_cast<uint64_t>(i))[0]));
  return out;
}

// Returns the result of the communicator itself, for comparison.
std::vector<float> direct(Communicator& comm, Group::Op op, const std::vector<float>& in) {
  std::vector<float> out(static_cast<size_t>(kCount * comm.size()));
  size_t count = static_cast<size_t>(kCount);
  switch (op) {
    case Group::Op::all_gather:
      comm.all_gather(in.data(), out.data(), count * sizeof(float), "direct");
      break;
    case Group::Op::reduce_scatter:
      comm.reduce_scatter(in.data(), out.data(), count, DS_DTYPE_F32, "direct");
      break;
    case Group::Op::all_reduce:
      comm.all_reduce(in.data(), out.data(), count, DS_DTYPE_F32, "direct");
      break;
    case Group::Op::all_to_all:
      comm.all_to_all(in.data(), out.data(), count * sizeof(float), "direct");
      break;
  }
  return out;
}

// A queue in host memory that can add at most 64 parts at once.
class SummingQueue final : public DeviceQueue {
 public:
  void copy(void*, const void*, int64_t) override {}
  void fill(void*, int, int64_t) override {}
  void launch(const Kernel&, const LaunchArgs&) override {}
  void run(std::function<void()>) override {}
  std::unique_ptr<Event> make_event() const override { return nullptr; }
  void record(Event&) override {}
  void wait(const Event&) override {}
  void finish() const noexcept override {}
  void sum(std::span<const void* const> parts, DType dtype, float* out, int64_t count) override {
    ASSERT_LE(parts.size(), 64u);
    ASSERT_EQ(dtype, DS_DTYPE_F32);
    std::vector<float> sums;
    for (int64_t e = 0; e < count; ++e) {
      std::vector<float> x;
      for (const void* part : parts) x.push_back(static_cast<const float*>(part)[e]);
      sums.push_back(ref::tree_sum(x));
    }
    std::copy(sums.begin(), sums.end(), out);
  }
};

TEST(DeviceSum, AnyNumberOfPartsHasTheBitsOfOneTree) {
  for (const int64_t parts : {1, 2, 63, 64, 65, 66, 127, 128, 129, 191, 1000, 4096, 4097, 9999}) {
    std::vector<std::vector<float>> given;
    std::vector<const void*> addresses;
    for (int64_t p = 0; p < parts; ++p) given.push_back(drawn(static_cast<uint32_t>(p), 3));
    for (const std::vector<float>& part : given) addresses.push_back(part.data());
    const auto bytes = static_cast<size_t>(device_sum_room(parts, 3));
    EXPECT_EQ(bytes == 0, parts <= 64);
    std::vector<std::byte> room(bytes + 1, std::byte{7});
    SummingQueue queue;
    // An output may be one of the parts.
    float* out = given[0].data();
    std::vector<float> want;
    for (size_t e = 0; e < 3; ++e) {
      std::vector<float> x;
      for (const std::vector<float>& part : given) x.push_back(part[e]);
      want.push_back(ref::tree_sum(x));
    }
    device_sum(queue, addresses, DS_DTYPE_F32, out, 3, room.data());
    EXPECT_EQ(std::memcmp(out, want.data(), 3 * sizeof(float)), 0) << parts;
    EXPECT_EQ(room[bytes], std::byte{7}) << parts;
  }
}

// Compares a group with its communicator on the host device and on the separate device. Payloads
// are either sent whole or staged in chunks that end inside blocks.
TEST(CommunicatorGroup, HasTheBitsOfItsCommunicator) {
  for (int world : {1, 2, 3}) {
    run_ranks(world, [&](Communicator& comm) {
      std::vector<float> in = drawn(static_cast<uint32_t>(comm.rank()), kCount * world);
      auto bytes = static_cast<int64_t>(in.size() * sizeof(float));
      HostDevice host;
      SeparateDevice separate;
      for (Device* device : {static_cast<Device*>(&host), static_cast<Device*>(&separate)}) {
        for (int64_t staging : {int64_t{1}, int64_t{100}, int64_t{1} << 20}) {
          std::unique_ptr<DeviceQueue> queue = device->make_queue("comm");
          std::unique_ptr<Group> group = make_group(comm, *device, *queue, nullptr, staging);
          std::unique_ptr<Event> event = queue->make_event();
          std::shared_ptr<Arena> arena = device->make_arena(Device::Place::device, 2 * bytes);
          for (auto op : {Group::Op::all_gather, Group::Op::reduce_scatter, Group::Op::all_reduce,
                          Group::Op::all_to_all}) {
            device->copy(arena->address(), in.data(), bytes);
            device->fill(arena->address() + bytes, 0, bytes);
            group->run(*queue, op, arena->address(), arena->address() + bytes, kCount, DS_DTYPE_F32,
                       nullptr, "group");
            queue->record(*event);
            event->synchronize();
            std::vector<float> out(in.size());
            device->copy(out.data(), arena->address() + bytes, bytes);
            EXPECT_TRUE(out == direct(comm, op, in))
                << device->name() << " operation " << static_cast<int>(op) << " staging "
                << staging;
          }
        }
      }
    });
  }
}

}  // namespace
}  // namespace ds::test
