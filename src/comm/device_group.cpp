// Problem. The ranks of a collective are threads of one process, and their memory is on one device.
// Bytes should be copied within the device, without host memory and without a thread that waits for
// a queue.
//
// Algorithm. A rank records an event on its queue when its input is ready, and all ranks exchange
// the addresses of their events and buffers (a Loan of the communicator). Each queue waits for the
// events of all ranks and copies from their memory, or adds it up. Then it records that it has
// finished, the ranks synchronize, and each queue waits for these events of all ranks; after that,
// inputs may change. An all_reduce first reduces each rank's share into its place in the result,
// then gathers the shares, so every element is added up once, and the result may overwrite the
// input.
//
// Invariant. No queue waits for an event that has not been recorded, because the ranks synchronize
// between recording and waiting. So queues never wait in a cycle, and all submitted work ends. An
// event is recorded again only after the ranks that wait for its previous record have synchronized,
// so one event for each purpose is enough.
//
// Errors. Other ranks may use this rank's memory, events and queue while they are in a collective.
// A rank that fails in a collective first finishes every queue that may hold such work
// (Loan::drain), then reports that it has done so; the others wait for that before their own error
// leaves the collective, and before a group is destroyed.
//
// Cost on the host. A collective takes 2 synchronizations of the ranks and 2 (W - 1) waits of a
// queue; an all_reduce takes 3 synchronizations and 3 (W - 1) waits. The communicator logs the
// times of submitting the work, not of the work itself.
#include "comm/device_group.h"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "comm/device_share.h"
#include "comm/device_sum.h"
#include "comm/exchange.h"
#include "core/base/dtype.h"

namespace ds {
namespace {

class DeviceGroup final : public Group {
 public:
  DeviceGroup(Communicator& comm, const DeviceQueue& queue)
      : comm_(comm),
        ranks_(static_cast<size_t>(comm.size())),
        ready_(queue.make_event()),
        summed_(queue.make_event()),
        finished_(queue.make_event()),
        all_(ranks_) {}
  ~DeviceGroup() override { comm_.exchange().await_returns(); }

  int64_t room(Group::Op op, int64_t count, DType dtype) const override;
  void run(DeviceQueue& queue, Group::Op op, const void* in, void* out, int64_t count, DType dtype,
           void* room, std::string_view label) override;
  void abort(std::string_view reason) override { comm_.abort(reason); }

 private:
  // The addresses that a rank sends to the others.
  struct Told {
    DeviceQueue* queue;
    const std::byte* in;
    std::byte* out;
    const Event *ready, *summed, *finished;
  };
  struct Call {
    Group::Op op;
    DType dtype;
    int64_t count;
    std::byte* room;
  };

  size_t me() const { return static_cast<size_t>(comm_.rank()); }
  void step(DeviceQueue& queue, const Call& call, int number);
  void exchange(DeviceQueue& queue, const Call& call);
  void gather_shares(DeviceQueue& queue, int64_t count);
  // Adds up the elements [begin, end) of all ranks' inputs.
  void sum(DeviceQueue& queue, const Call& call, int64_t begin, int64_t end, std::byte* out);
  void wait(DeviceQueue& queue, const Event* Told::*event) const;
  DeviceShare share(int64_t count, size_t rank) const;

  Communicator& comm_;
  const size_t ranks_;
  const std::unique_ptr<Event> ready_, summed_, finished_;
  std::vector<Told> all_;
};

// Copies unless source and target are the same, because a rank's input may be its own block of the
// result.
void copy(DeviceQueue& queue, std::byte* to, const std::byte* from, int64_t bytes) {
  if (to != from) queue.copy(to, from, bytes);
}

DeviceShare DeviceGroup::share(int64_t count, size_t rank) const {
  return share_of(count, static_cast<int64_t>(ranks_), static_cast<int64_t>(rank));
}

void DeviceGroup::wait(DeviceQueue& queue, const Event* Told::*event) const {
  for (size_t r = 0; r < ranks_; ++r) {
    if (r != me()) queue.wait(*(all_[r].*event));
  }
}

int64_t DeviceGroup::room(Group::Op op, int64_t count, DType) const {
  const auto ranks = static_cast<int64_t>(ranks_);
  if (op == Group::Op::reduce_scatter) return device_sum_room(ranks, count);
  return op == Group::Op::all_reduce ? device_sum_room(ranks, share(count, 0).count()) : 0;
}

void DeviceGroup::run(DeviceQueue& queue, Group::Op op, const void* in, void* out, int64_t count,
                      DType dtype, void* room, std::string_view label) {
  const Told mine{&queue,
                  static_cast<const std::byte*>(in),
                  static_cast<std::byte*>(out),
                  ready_.get(),
                  summed_.get(),
                  finished_.get()};
  const Call call{op, dtype, count, static_cast<std::byte*>(room)};
  queue.record(*ready_);
  Loan loan;
  loan.op = op;
  loan.count = static_cast<size_t>(count);
  loan.dtype = dtype;
  loan.mine = &mine;
  loan.all = all_.data();
  loan.bytes = sizeof mine;
  loan.steps = op == Group::Op::all_reduce ? 3 : 2;
  loan.step = [&](int number) { step(queue, call, number); };
  loan.drain = [&] {
    for (const Told& told : all_) told.queue->finish();
  };
  comm_.make(loan, label);
}

// Step 0 exchanges or reduces; an all_reduce gathers its shares in step 1; the last step waits
// until every rank has finished reading.
void DeviceGroup::step(DeviceQueue& queue, const Call& call, int number) {
  const bool reduces_all = call.op == Group::Op::all_reduce;
  if (number == 0) {
    wait(queue, &Told::ready);
    exchange(queue, call);
    queue.record(reduces_all ? *summed_ : *finished_);
  } else if (reduces_all && number == 1) {
    wait(queue, &Told::summed);
    gather_shares(queue, call.count);
    queue.record(*finished_);
  } else {
    wait(queue, &Told::finished);
  }
}

void DeviceGroup::exchange(DeviceQueue& queue, const Call& call) {
  const int64_t count = call.count, bytes = count * size_of(call.dtype);
  const auto rank = static_cast<int64_t>(me());
  std::byte* out = all_[me()].out;
  switch (call.op) {
    case Group::Op::all_gather:
      for (size_t r = 0; r < ranks_; ++r)
        copy(queue, out + static_cast<int64_t>(r) * bytes, all_[r].in, bytes);
      return;
    case Group::Op::all_to_all:
      for (size_t r = 0; r < ranks_; ++r)
        copy(queue, out + static_cast<int64_t>(r) * bytes, all_[r].in + rank * bytes, bytes);
      return;
    case Group::Op::reduce_scatter:
      return sum(queue, call, rank * count, (rank + 1) * count, out);
    case Group::Op::all_reduce: {
      const auto [begin, end] = share(count, me());
      return sum(queue, call, begin, end, out + begin * static_cast<int64_t>(sizeof(float)));
    }
  }
}

void DeviceGroup::gather_shares(DeviceQueue& queue, int64_t count) {
  constexpr auto kSum = static_cast<int64_t>(sizeof(float));
  for (size_t r = 0; r < ranks_; ++r) {
    const DeviceShare theirs = share(count, r);
    const int64_t begin = theirs.begin * kSum;
    copy(queue, all_[me()].out + begin, all_[r].out + begin, theirs.count() * kSum);
  }
}

void DeviceGroup::sum(DeviceQueue& queue, const Call& call, int64_t begin, int64_t end,
                      std::byte* out) {
  std::vector<const void*> parts;
  for (const Told& told : all_) parts.push_back(told.in + begin * size_of(call.dtype));
  device_sum(queue, parts, call.dtype, reinterpret_cast<float*>(out), end - begin, call.room);
}

}  // namespace

std::unique_ptr<Group> make_device_group(Communicator& comm, const DeviceQueue& queue) {
  return std::make_unique<DeviceGroup>(comm, queue);
}

}  // namespace ds
