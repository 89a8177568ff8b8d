#include "comm/communicator_group.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "core/base/random.h"
#include "core/device/host_device.h"
#include "core/device/separate_device.h"
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

// What the communicator gives.
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

// On every device, whole or staged in chunks that end within blocks.
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
