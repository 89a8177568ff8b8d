// Problem. Each rank has a separate device, in any process on any host, and a library of the device
// (NCCL) moves bytes between the devices' queues. The results must have the same bits as on every
// other transport. If a rank dies or calls something else, the others must fail with an error that
// names it, although the library only hangs.
//
// Algorithm. The library moves bytes and adds nothing up. In a reduce_scatter, each rank receives
// its share from every other rank into the workspace (`room`), and its queue adds the shares up in
// rank order (device_sum), its own share directly from the input. An all_reduce does the same with
// a share of the elements and then gathers the shares. Before anything is submitted, the ranks
// synchronize on the host (a Loan without data) and compare what they are about to do, so no rank
// submits a call that another rank does not make.
//
// Invariant. A rank that waits for its queue, which may wait for another rank's queue, checks on
// the other ranks meanwhile (watch(), settle()). If one of them has died, has ended the group or
// makes no progress, that is an error on this rank, too. After such an error, a rank ends the link
// (abort()) before it finishes a queue; all ranks do so, because each of them learns of the error.
// A rank marks progress for each collective that has ended on its queue.
//
// Cost. A collective takes one synchronization on the host and moves as many bytes as a ring does.
// The workspace of a sum has W - 1 received shares and, with more than 64 ranks, the sum of every
// 64 shares. The communicator logs the times of submitting the work, not of the work itself.
//
// Source. NCCL's user guide, "Using nonblocking communicators" and "Error handling".
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
#include "comm/device_sum.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/round.h"
#include "core/base/trace.h"
#include "ds_plugin.h"

namespace ds {
namespace {

using Part = ds_plugin_part;

// The numbers of words that a rank sends in the two tests of its link, divided evenly among the
// ranks of the group. A library may use different protocols for small and large transfers, and
// allocates memory for each protocol when it first needs it.
constexpr int64_t kTriedWords[] = {1 << 10, 1 << 18};

// Runs `body`, which uses a link. If the library reports an error and another rank has failed or
// ended the group, throws that rank's error, which is the cause; otherwise throws the library's
// error.
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

// Returns DeviceLink::settled(), or throws as use_link() does.
bool look(Communicator& comm, DeviceLink& link, std::string_view operation,
          std::string_view label) {
  bool settled = false;
  use_link(comm, operation, label, [&] { settled = link.settled(); });
  return settled;
}

// Waits until `done` returns true, and checks on the other ranks meanwhile.
void wait_until(const std::function<bool()>& done, Communicator& comm, std::string_view operation,
                std::string_view label) {
  // A sleep lasts about 50 us longer than requested, so short waits yield instead.
  constexpr int64_t kAwakeNs = 100'000;
  constexpr std::chrono::microseconds kMost{500};
  // Time between two checks on the other ranks.
  constexpr int64_t kLookNs = 20'000'000;
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

// Collectives whose transfers are submitted to queues. The object remembers the collectives that
// have not ended.
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
  // A collective that has been submitted to a queue and is not known to have ended.
  struct Pending {
    std::unique_ptr<Event> ended;
    const char* operation;
    std::string label;
  };
  // Returns the bytes of one slot of the workspace, which has a slot for the part from each other
  // rank. Slots have equal sizes and aligned offsets.
  static int64_t slot_bytes(int64_t count, DType dtype) {
    constexpr int64_t kAlignment = 256;
    return round_up(count * size_of(dtype), kAlignment);
  }
  DeviceShare share(int64_t count, int64_t rank) const { return share_of(count, ranks_, rank); }
  void submit(const Call& call);
  // Exchanges parts with all ranks and adds up this rank's share into `out`. part(r) is the range
  // of elements of every rank's `in` that belongs to rank r.
  void exchange_and_sum(const Call& call, const std::function<DeviceShare(int64_t)>& part,
                        std::byte* out);
  void gather_shares(const Call& call);
  // Starts a swap on the queue and returns when the link is settled.
  void swap(const Call& call, const std::vector<Part>& sends, const std::vector<Part>& receives);
  // Records an event after a submitted collective and remembers both.
  void note(const Call& call);
  // Forgets the collectives that have ended, and marks progress for each of them.
  void forget_ended();

  Communicator& comm_;
  const DeviceQueue& queue_;
  DeviceLink& link_;
  const int64_t ranks_, me_;
  std::deque<Pending> pending_;
  // Events that no pending collective uses.
  std::vector<std::unique_ptr<Event>> events_;
};

int64_t LinkGroup::room(Group::Op op, int64_t count, DType dtype) const {
  const bool reduces_all = op == Group::Op::all_reduce;
  if (!reduces_all && op != Group::Op::reduce_scatter) return 0;
  const int64_t own = reduces_all ? share(count, 0).count() : count;
  return (ranks_ - 1) * slot_bytes(own, dtype) + device_sum_room(ranks_, own);
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
  if (own > 0)
    device_sum(call.queue, parts, call.dtype, reinterpret_cast<float*>(out), own,
               call.room + (ranks_ - 1) * slot);
}

// The library's gather needs shares of equal size; unequal shares are exchanged by a swap.
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

// Moves about `most` words from each rank over the link, first by a gather, then by a swap, and
// checks the words that arrive. Words are multiples of an odd constant, so each pair of ranks and
// each position has a different value.
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
  // Waits for the bytes and compares them: from rank r, this rank must have received the words that
  // rank r has for rank to(r).
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
            "{} '{}': the bytes that rank {} of {} sent to rank {} were altered in transit: their "
            "devices or the path between them are faulty, or {} takes a path that does not work "
            "here",
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
    // The queue must not use the arena after it is freed.
    queue.finish();
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
