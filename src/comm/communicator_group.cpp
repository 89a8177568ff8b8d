#include "comm/communicator_group.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "comm/device_group.h"
#include "comm/link_group.h"
#include "core/base/error.h"
#include "core/device/device.h"

namespace ds {
namespace {

size_t bytes_of(int64_t count, DType dtype) { return static_cast<size_t>(count * size_of(dtype)); }

void exchange(Communicator& comm, Group::Op op, const void* in, void* out, int64_t count,
              DType dtype, std::string_view label) {
  auto elements = static_cast<size_t>(count);
  switch (op) {
    case Group::Op::all_gather:
      return comm.all_gather(in, out, bytes_of(count, dtype), label);
    case Group::Op::reduce_scatter:
      return comm.reduce_scatter(in, out, elements, dtype, label);
    case Group::Op::all_reduce:
      return comm.all_reduce(in, out, elements, dtype, label);
    case Group::Op::all_to_all:
      return comm.all_to_all(in, out, bytes_of(count, dtype), label);
  }
}

// Collectives on memory that the device shares with host code.
class HostGroup final : public Group {
 public:
  explicit HostGroup(Communicator& comm) : comm_(comm) {}
  int64_t room(Group::Op, int64_t, DType) const override { return 0; }
  void run(DeviceQueue& queue, Group::Op op, const void* in, void* out, int64_t count, DType dtype,
           void*, std::string_view label) override {
    if (queue.immediate()) return exchange(comm_, op, in, out, count, dtype, label);
    queue.run([=, this] { exchange(comm_, op, in, out, count, dtype, label); });
  }
  void abort(std::string_view reason) override { comm_.abort(reason); }

 private:
  Communicator& comm_;
};

// The input or the output of a collective: `blocks` consecutive blocks of equally many elements,
// each of `unit` bytes.
struct Side {
  int64_t unit = 0;
  int64_t blocks = 1;
};

// Collectives on the memory of a device whose queue runs host code. They go through staging memory
// on the host.
class StagedGroup final : public Group {
 public:
  StagedGroup(Communicator& comm, Device& device, int64_t staging)
      : comm_(comm), device_(device), staging_(staging) {}
  int64_t room(Group::Op, int64_t, DType) const override { return 0; }
  void run(DeviceQueue& queue, Group::Op op, const void* in, void* out, int64_t count, DType dtype,
           void*, std::string_view label) override {
    queue.run([=, this] { stage(op, in, out, count, dtype, label); });
  }
  void abort(std::string_view reason) override { comm_.abort(reason); }

 private:
  void stage(Group::Op op, const void* in, void* out, int64_t count, DType dtype,
             std::string_view label);

  Communicator& comm_;
  Device& device_;
  // The largest input or output of a chunk, in bytes. A chunk has at least one element of each
  // block.
  const int64_t staging_;
  // Staging memory on the host, of the kind from which the device copies fastest. It grows as
  // needed.
  std::shared_ptr<Arena> in_, out_;
};

// Chunks do not change bits, because the order of summation is the same for each element. A chunk
// has the same range of every block, so the blocks of input and output are copied one by one.
void StagedGroup::stage(Group::Op op, const void* in, void* out, int64_t count, DType dtype,
                        std::string_view label) {
  const int64_t ranks = comm_.size();
  bool sums = op == Group::Op::reduce_scatter || op == Group::Op::all_reduce;
  const Side from{size_of(dtype),
                  op == Group::Op::reduce_scatter || op == Group::Op::all_to_all ? ranks : 1};
  const Side to{sums ? static_cast<int64_t>(sum_size(dtype)) : size_of(dtype),
                op == Group::Op::all_gather || op == Group::Op::all_to_all ? ranks : 1};
  int64_t chunk =
      std::max<int64_t>(1, staging_ / std::max(from.unit * from.blocks, to.unit * to.blocks));
  for (int64_t begin = 0; begin < count || begin == 0; begin += chunk) {
    int64_t n = std::min(chunk, count - begin);
    auto fit = [&](std::shared_ptr<Arena>& staging, const Side& b) {
      const int64_t bytes = b.blocks * n * b.unit;
      if (!staging || staging->bytes() < bytes)
        staging = device_.make_arena(Device::Place::host, bytes);
    };
    fit(in_, from), fit(out_, to);
    for (int64_t b = 0; b < from.blocks && n > 0; ++b) {
      const auto* source = static_cast<const std::byte*>(in) + (b * count + begin) * from.unit;
      device_.copy(in_->address() + b * n * from.unit, source, n * from.unit);
    }
    exchange(comm_, op, in_->address(), out_->address(), n, dtype, label);
    for (int64_t b = 0; b < to.blocks && n > 0; ++b) {
      auto* target = static_cast<std::byte*>(out) + (b * count + begin) * to.unit;
      device_.copy(target, out_->address() + b * n * to.unit, n * to.unit);
    }
  }
}

}  // namespace

std::unique_ptr<Group> make_group(Communicator& comm, Device& device, const DeviceQueue& queue,
                                  DeviceLink* link, int64_t staging) {
  if (comm.callback_threads() && !queue.immediate() &&
      (device.shared() || queue.runs_host_code())) {
    raise(DS_ERROR_UNSUPPORTED,
          "device '{}' runs collectives on its own thread, but a comm made from callbacks must run "
          "them on the caller's: use device 'cpu' or a comm of libds",
          device.name());
  }
  if (device.shared()) return std::make_unique<HostGroup>(comm);
  if (link) return make_link_group(comm, queue, *link);
  if (!queue.runs_host_code()) return make_device_group(comm, queue);
  return std::make_unique<StagedGroup>(comm, device, staging);
}

}  // namespace ds
