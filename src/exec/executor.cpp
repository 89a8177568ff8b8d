#include "exec/executor.h"

#include <algorithm>

#include "core/base/error.h"

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
    for (size_t i = 0; i < program.instrs.size(); ++i) {
      for (InstrId wait : program.instrs[i].waits) {
        if (is_file(program_.instrs[index_of(wait)])) file_waits_[i].push_back(wait);
      }
    }
  }

  ~InOrderExecutor() override { leave_tail(); }

  void run_to(InstrId end) override {
    take_tail();
    if (position_ == 0 && end > 0) std::swap(previous_, tickets_);
    for (; position_ < end; ++position_) {
      size_t i = static_cast<size_t>(position_);
      if (context_.before_instr) context_.before_instr(i);
      try {
        issue(i);
      } catch (const std::exception& error) {
        fail(i, error);
      }
    }
    if (static_cast<size_t>(position_) == program_.instrs.size()) {
      if (last_.read != 0) context_.read_lane->wait(last_.read);
      if (!context_.tail) settle();
      position_ = 0;
    }
  }

  void settle() override {
    if (last_.write != 0) context_.write_lane->wait(last_.write);
  }

  void abandon() override {
    if (last_.read != 0) context_.read_lane->wait(last_.read);
    settle();
    position_ = 0;
  }

 private:
  // Lanes complete in order, so waiting for the latest of several tickets of a lane is enough.
  struct Tickets {
    uint64_t read = 0, write = 0;
  };

  static bool is_file(const Instr& in) { return in.queue == Queue::read || in.queue == Queue::write; }

  // Index of the instruction that a wait names, in this run or the one before.
  size_t index_of(InstrId wait) const {
    return static_cast<size_t>(wait < 0 ? wait + static_cast<InstrId>(program_.instrs.size()) : wait);
  }

  Tickets awaited(size_t i) const {
    Tickets t;
    for (InstrId wait : file_waits_[i]) {
      size_t at = index_of(wait);
      uint64_t ticket = wait < 0 ? previous_[at] : tickets_[at];
      uint64_t& latest = program_.instrs[at].queue == Queue::read ? t.read : t.write;
      latest = std::max(latest, ticket);
    }
    return t;
  }

  // Waits for what instruction i awaits; may be called when this executor is no more: lanes live longer.
  auto waiter(size_t i) const {
    return [t = awaited(i), read = context_.read_lane, write = context_.write_lane] {
      if (t.read != 0) read->wait(t.read);
      if (t.write != 0) write->wait(t.write);
    };
  }

  void issue(size_t i) {
    const Instr& in = program_.instrs[i];
    if (is_file(in)) return submit(i);
    if (!file_waits_[i].empty()) waiter(i)();
    if ((i & 15) == 0) context_.comm->tick();
    if (!context_.trace) return perform(i);
    int64_t begin = now_ns();
    perform(i);
    context_.trace->span(queue_name(in.queue), launches_[i].label, begin, now_ns());
  }

  void submit(size_t i) {
    IoRequest request = io_request(launches_[i]);
    if (!file_waits_[i].empty()) request.ready = waiter(i);
    bool read = program_.instrs[i].queue == Queue::read;
    tickets_[i] = (read ? context_.read_lane : context_.write_lane)->submit(std::move(request));
    (read ? last_.read : last_.write) = tickets_[i];
  }

  std::vector<uint64_t> tickets_, previous_;  // of file instructions in this run and the one before
  std::vector<std::vector<InstrId>> file_waits_;
  Tickets last_;
};

}  // namespace

std::unique_ptr<Executor> make_executor(const Program& program, ExecContext context) {
  return std::make_unique<InOrderExecutor>(program, std::move(context));
}

}  // namespace ds
