// Problem: ranks are on devices of their own, in any processes of any hosts, and a library of the
// device (NCCL) moves bytes between their queues. Results should have the bits that every transport
// gives, and a rank that dies or does something else should be an error that names it, although the
// library only hangs.
//
// Algorithm. The library moves bytes and adds nothing up. A reduce_scatter is an exchange: each
// rank receives its share from every other one into the room, and its queue adds the shares up in
// the order of ranks (tree_sum), its own where it lies. An all_reduce does so with a share of the
// elements, which are then gathered. Before anything is submitted the ranks meet on the control
// plane (a Loan that tells nothing): they compare what they are about to do, and nobody gives its
// queue a call to which another does not come.
//
// Invariant. A rank that waits for its queue, which may wait for another rank's, watches the others
// meanwhile (watch(), settle()): one that has died, has ended the group or stands still is an error
// here, too. Behind such an error whoever finishes a queue has ended the link first (abort()); on
// every rank, since each of them hears of the error. A collective that has ended on a queue is
// progress of its rank, which the others see.
//
// Cost: a meeting on the host for each collective; memory for what is received, W - 1 shares; the
// bytes of a ring. Times that the communicator logs are those of submitting.
//
// Source: NCCL's user guide, "Using nonblocking communicators" and "Error handling".
#include "comm/link_group.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "comm/device_share.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/round.h"
#include "core/base/trace.h"
#include "ds_plugin.h"

namespace ds {
namespace {

using Part = ds_plugin_part;

// Words that a rank sends when its link is tried: a library may send a little in another way than
// much, and takes memory for each way when it first needs it. Parts of large groups are small.
constexpr int64_t kTriedWords[] = {1 << 10, 1 << 18};

// Does something with a link. Where the library has an error and the other ranks have one, too,
// theirs is the cause.
void use_link(Communicator& comm, std::string_view operation, std::string_view label,
              const std::function<void()>& body) {
  std::string found;
  try {
    body();
  } catch (const std::exception& error) {
    found = error.what();
  }
  if (!found.empty()) comm.watch(operation, label, found);
}

// Whether the link is settled.
bool look(Communicator& comm, DeviceLink& link, std::string_view operation,
          std::string_view label) {
  bool settled = false;
  use_link(comm, operation, label, [&] { settled = link.settled(); });
  return settled;
}

// Returns when `done` says so, and watches the other ranks meanwhile.
void wait_until(const std::function<bool()>& done, Communicator& comm, std::string_view operation,
                std::string_view label) {
  // A sleep lasts about 50 us longer than asked, so short waits spin.
  constexpr int64_t kAwakeNs = 100'000;
  constexpr std::chrono::microseconds kMost{500};
  constexpr int64_t kLookNs = 20'000'000;  // between looks at the other ranks
  const int64_t begin_ns = now_ns();
  int64_t looked_ns = begin_ns;
  for (std::chrono::microseconds pause{1}; !done();) {
    if (now_ns() - begin_ns < kAwakeNs) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(kMost, pause * 2);
    if (now_ns() - looked_ns < kLookNs) continue;
    looked_ns = now_ns();
    comm.watch(operation, label);
  }
}

class LinkGroup final : public Group {
 public:
  LinkGroup(Communicator& comm, const DeviceQueue& queue, DeviceLink& link)
      : comm_(comm), queue_(queue), link_(link), ranks_(comm.size()), me_(comm.rank()) {}

  int64_t room(Group::Op op, int64_t count, DType dtype) const override;
  void run(DeviceQueue& queue, Group::Op op, const void* in, void* out, int64_t count, DType dtype,
           void* room, std::string_view label) override;
  void watch() override;
  void abort(std::string_view reason) override {
    comm_.abort(reason);
    link_.abort();
  }

 private:
  struct Call {
    DeviceQueue& queue;
    Group::Op op;
    const std::byte* in;
    std::byte *out, *room;
    int64_t count;
    DType dtype;
    std::string_view label;
  };
  // What a queue has been given and has not been seen to end.
  struct Pending {
    std::unique_ptr<Event> ended;
    const char* operation;
    std::string label;
  };
  // Where what comes from another rank lies in the room: slots of one size, whose beginnings are
  // aligned.
  static int64_t slot_bytes(int64_t count, DType dtype) {
    constexpr int64_t kAlignment = 256;
    return round_up(count * size_of(dtype), kAlignment);
  }
  DeviceShare share(int64_t count, int64_t rank) const { return share_of(count, ranks_, rank); }
  void submit(const Call& call);
  // Adds up the share of this rank, of which every rank has one at in + its begin, to `out`.
  void exchange_and_sum(const Call& call, const std::function<DeviceShare(int64_t)>& part,
                        std::byte* out);
  void gather_shares(const Call& call);
  void swap(const Call& call, const std::vector<Part>& sends, const std::vector<Part>& receives);
  void note(const Call& call);
  void forget_ended();

  Communicator& comm_;
  const DeviceQueue& queue_;
  DeviceLink& link_;
  const int64_t ranks_, me_;
  std::deque<Pending> pending_;
  std::vector<std::unique_ptr<Event>> events_;  // that nobody uses
};

int64_t LinkGroup::room(Group::Op op, int64_t count, DType dtype) const {
  if (op == Group::Op::reduce_scatter) return (ranks_ - 1) * slot_bytes(count, dtype);
  return op == Group::Op::all_reduce ? (ranks_ - 1) * slot_bytes(share(count, 0).count(), dtype)
                                     : 0;
}

void LinkGroup::run(DeviceQueue& queue, Group::Op op, const void* in, void* out, int64_t count,
                    DType dtype, void* room, std::string_view label) {
  const Call call{queue,
                  op,
                  static_cast<const std::byte*>(in),
                  static_cast<std::byte*>(out),
                  static_cast<std::byte*>(room),
                  count,
                  dtype,
                  label};
  forget_ended();
  Loan loan;
  loan.op = op;
  loan.count = static_cast<size_t>(count);
  loan.dtype = dtype;
  loan.step = [&](int) { submit(call); };
  comm_.make(loan, label);
  note(call);
}

void LinkGroup::submit(const Call& call) {
  const int64_t count = call.count, bytes = count * size_of(call.dtype);
  const auto blocks = [&](int64_t rank) { return DeviceShare{rank * count, (rank + 1) * count}; };
  if (count == 0) return;
  switch (call.op) {
    case Group::Op::all_gather:
      link_.gather(call.queue, call.in, call.out, bytes);
      return settle(comm_, link_, operation_of(call.op), call.label);
    case Group::Op::all_to_all: {
      std::vector<Part> sends, receives;
      for (int64_t r = 0; r < ranks_; ++r) {
        sends.push_back({const_cast<std::byte*>(call.in) + r * bytes, static_cast<size_t>(bytes)});
        receives.push_back({call.out + r * bytes, static_cast<size_t>(bytes)});
      }
      call.queue.copy(call.out + me_ * bytes, call.in + me_ * bytes, bytes);
      return swap(call, sends, receives);
    }
    case Group::Op::reduce_scatter:
      return exchange_and_sum(call, blocks, call.out);
    case Group::Op::all_reduce: {
      constexpr auto kSum = static_cast<int64_t>(sizeof(float));
      exchange_and_sum(
          call, [&](int64_t rank) { return share(count, rank); },
          call.out + share(count, me_).begin * kSum);
      return gather_shares(call);
    }
  }
}

void LinkGroup::exchange_and_sum(const Call& call, const std::function<DeviceShare(int64_t)>& part,
                                 std::byte* out) {
  const int64_t unit = size_of(call.dtype), slot = slot_bytes(part(0).count(), call.dtype);
  const int64_t own = part(me_).count();
  std::vector<Part> sends, receives;
  std::vector<const void*> parts;
  for (int64_t r = 0; r < ranks_; ++r) {
    const DeviceShare theirs = part(r);
    std::byte* from = const_cast<std::byte*>(call.in) + theirs.begin * unit;
    std::byte* received = call.room + (r < me_ ? r : r - 1) * slot;
    sends.push_back({from, static_cast<size_t>(theirs.count() * unit)});
    receives.push_back({received, static_cast<size_t>(own * unit)});
    parts.push_back(r == me_ ? from : received);
  }
  swap(call, sends, receives);
  if (own > 0) call.queue.sum(parts, call.dtype, reinterpret_cast<float*>(out), own);
}

// Shares of one size lie as a gather wants them.
void LinkGroup::gather_shares(const Call& call) {
  constexpr auto kSum = static_cast<int64_t>(sizeof(float));
  const auto at = [&](int64_t rank) { return call.out + share(call.count, rank).begin * kSum; };
  const auto bytes = [&](int64_t rank) { return share(call.count, rank).count() * kSum; };
  if (bytes(0) == bytes(ranks_ - 1)) {
    link_.gather(call.queue, at(me_), call.out, bytes(0));
    return settle(comm_, link_, operation_of(call.op), call.label);
  }
  std::vector<Part> sends, receives;
  for (int64_t r = 0; r < ranks_; ++r) {
    sends.push_back({at(me_), static_cast<size_t>(bytes(me_))});
    receives.push_back({at(r), static_cast<size_t>(bytes(r))});
  }
  swap(call, sends, receives);
}

void LinkGroup::swap(const Call& call, const std::vector<Part>& sends,
                     const std::vector<Part>& receives) {
  link_.swap(call.queue, sends, receives);
  settle(comm_, link_, operation_of(call.op), call.label);
}

void LinkGroup::note(const Call& call) {
  std::unique_ptr<Event> event;
  if (events_.empty()) {
    event = queue_.make_event();
  } else {
    event = std::move(events_.back());
    events_.pop_back();
  }
  call.queue.record(*event);
  pending_.push_back({std::move(event), operation_of(call.op), std::string(call.label)});
}

void LinkGroup::forget_ended() {
  while (!pending_.empty() && pending_.front().ended->done()) {
    events_.push_back(std::move(pending_.front().ended));
    pending_.pop_front();
    comm_.tick();
  }
}

void LinkGroup::watch() {
  forget_ended();
  if (pending_.empty()) return;
  const auto& [ended, operation, label] = pending_.front();
  look(comm_, link_, operation, label);
  comm_.watch(operation, label);
}

// Has the link move about `most` words from each rank.
void try_words(Communicator& comm, Device& device, DeviceQueue& queue, DeviceLink& link,
               std::string_view label, int64_t most) {
  constexpr const char* kOperation = "try link";
  const int ranks = comm.size(), me = comm.rank();
  const int64_t words = std::max<int64_t>(1, most / ranks),
                bytes = words * static_cast<int64_t>(sizeof(uint32_t));
  const std::shared_ptr<Arena> arena = device.make_arena(Device::Place::device, 2 * ranks * bytes);
  std::byte *const sent = arena->address(), *const received = sent + ranks * bytes;
  const auto word = [&](int from, int to, int64_t i) {
    return static_cast<uint32_t>((int64_t{from} * ranks + to) * words + i) * 0x9e3779b9u;
  };
  std::vector<uint32_t> host(static_cast<size_t>(ranks * words));
  const auto each = [&](const std::function<void(int, int64_t, uint32_t&)>& body) {
    for (int r = 0; r < ranks; ++r) {
      for (int64_t i = 0; i < words; ++i) body(r, i, host[static_cast<size_t>(r * words + i)]);
    }
  };
  const std::unique_ptr<Event> ended = queue.make_event();
  // Of rank r comes what it has for the rank to(r).
  const auto compare = [&](const std::function<int(int)>& to) {
    settle(comm, link, kOperation, label);
    queue.record(*ended);
    wait_until([&] { return look(comm, link, kOperation, label) && ended->done(); }, comm,
               kOperation, label);
    comm.tick();
    device.copy(host.data(), received, ranks * bytes);
    each([&](int r, int64_t i, uint32_t at) {
      if (r == me || at == word(r, to(r), i)) return;
      raise(DS_ERROR_COMM,
            "{} '{}': what rank {} of {} sent to rank {} arrived as other bytes: their devices or "
            "what lies "
            "between them are faulty, or {} takes a way that does not work here",
            kOperation, label, r, ranks, me, device.link_library());
    });
  };
  try {
    each([&](int to, int64_t i, uint32_t& at) { at = word(me, to, i); });
    device.copy(sent, host.data(), ranks * bytes);
    use_link(comm, kOperation, label,
             [&] { link.gather(queue, sent + me * bytes, received, bytes); });
    compare([](int r) { return r; });
    std::vector<Part> sends, receives;
    for (int r = 0; r < ranks; ++r) {
      sends.push_back({sent + r * bytes, static_cast<size_t>(bytes)});
      receives.push_back({received + r * bytes, static_cast<size_t>(bytes)});
    }
    use_link(comm, kOperation, label, [&] { link.swap(queue, sends, receives); });
    compare([me](int) { return me; });
  } catch (const std::exception& error) {
    comm.abort(error.what());
    link.abort();
    queue.finish();  // before the arena ends
    throw;
  }
}

}  // namespace

std::unique_ptr<Group> make_link_group(Communicator& comm, const DeviceQueue& queue,
                                       DeviceLink& link) {
  return std::make_unique<LinkGroup>(comm, queue, link);
}

void settle(Communicator& comm, DeviceLink& link, std::string_view operation,
            std::string_view label) {
  wait_until([&] { return look(comm, link, operation, label); }, comm, operation, label);
}

void try_link(Communicator& comm, Device& device, DeviceQueue& queue, DeviceLink& link,
              std::string_view label) {
  for (const int64_t words : kTriedWords) try_words(comm, device, queue, link, label, words);
}

}  // namespace ds
