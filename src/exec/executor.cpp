#include "exec/executor.h"

#include <algorithm>
#include <cstdint>
#include <exception>

#include "core/base/error.h"
#include "io/request.h"

namespace ds {
namespace {

// Issue order. comm, copy, compute and host run inline, so only files can be in flight when an instruction
// waits.
class InOrderExecutor final : public Executor {
 public:
  InOrderExecutor(const Program& program, ExecContext context)
      : Executor(program, std::move(context)),
        tickets_(program.instrs.size(), 0),
        previous_(program.instrs.size(), 0),
        file_waits_(program.instrs.size()) {
    for (InstrId i : program.instrs.ids()) {
      for (const Wait& wait : program.instrs[i].waits) {
        if (is_file(program_.instrs[wait.instr])) file_waits_[i].push_back(wait);
      }
    }
  }

  ~InOrderExecutor() override { leave_tail(); }

  void run_to(Position end) override {
    take_tail();
    send_scalars();
    if (position_ == Position() && program_.before(position_, end)) std::swap(previous_, tickets_);
    for (; program_.before(position_, end); position_ = program_.next(position_)) {
      InstrId i = position_.instr;
      if (context_.before_instr && program_.takes_part(position_)) context_.before_instr(i.index());
      try {
        issue(position_);
      } catch (const std::exception& error) {
        fail(i, error);
      }
    }
    if (position_ == program_.end()) {
      if (last_.read != 0) context_.read_lane->wait(last_.read);
      if (!context_.tail) settle();
      position_ = {};
    }
    fetch_scalars();
  }

  void settle() override {
    if (last_.read != 0) context_.read_lane->wait(last_.read);
    if (last_.write != 0) context_.write_lane->wait(last_.write);
  }

  void abandon() override {
    settle();
    position_ = {};
  }

 private:
  // Lanes complete in order, so waiting for the latest of several tickets of a lane is enough. Of a repeated
  // instruction it is that of its latest round, which is the one that a wait means.
  struct Tickets {
    uint64_t read = 0, write = 0;
  };

  static bool is_file(const Instr& in) { return in.queue == Queue::read || in.queue == Queue::write; }

  Tickets awaited(InstrId i) const {
    Tickets t;
    for (const Wait& wait : file_waits_[i]) {
      uint64_t ticket = (wait.run_before ? previous_ : tickets_)[wait.instr];
      uint64_t& latest = program_.instrs[wait.instr].queue == Queue::read ? t.read : t.write;
      latest = std::max(latest, ticket);
    }
    return t;
  }

  // Waits for what instruction i awaits; may be called when this executor is no more: lanes live longer.
  auto waiter(InstrId i) const {
    return [t = awaited(i), read = context_.read_lane, write = context_.write_lane] {
      if (t.read != 0) read->wait(t.read);
      if (t.write != 0) write->wait(t.write);
    };
  }

  // One that has no part in this micro-step still waits: others rely on it.
  void issue(Position at) {
    InstrId i = at.instr;
    const Instr& in = program_.instrs[i];
    if (is_file(in)) return submit(at);
    if (!file_waits_[i].empty()) waiter(i)();
    if (!program_.takes_part(at)) return;
    if (i.number() % 16 == 0) context_.comm->tick();
    if (!context_.trace) return perform(at);
    int64_t begin = now_ns();
    perform(at);
    context_.trace->span(queue_name(in.queue), launches_[i].label, begin, now_ns());
  }

  void submit(Position at) {
    InstrId i = at.instr;
    IoRequest request = io_request(at);
    if (!program_.takes_part(at)) request.bytes = 0;
    if (!file_waits_[i].empty()) request.ready = waiter(i);
    bool read = program_.instrs[i].queue == Queue::read;
    tickets_[i] = (read ? context_.read_lane : context_.write_lane)->submit(std::move(request));
    (read ? last_.read : last_.write) = tickets_[i];
  }

  IdVector<InstrId, uint64_t> tickets_, previous_;  // of file instructions in this run and the one before
  IdVector<InstrId, std::vector<Wait>> file_waits_;
  Tickets last_;
};

}  // namespace

std::unique_ptr<Executor> make_executor(const Program& program, ExecContext context) {
  return std::make_unique<InOrderExecutor>(program, std::move(context));
}

}  // namespace ds
