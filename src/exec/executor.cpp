#include "exec/executor.h"

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
        file_waits_(program.instrs.size()) {
    for (size_t i = 0; i < program.instrs.size(); ++i) {
      for (InstrId wait : program.instrs[i].waits) {
        if (is_file(program.instrs[static_cast<size_t>(wait)])) file_waits_[i].push_back(wait);
      }
    }
  }

  void run_to(InstrId end) override {
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
      drain();
      position_ = 0;
    }
  }

  void abandon() override {
    drain();
    position_ = 0;
  }

 private:
  static bool is_file(const Instr& in) { return in.queue == Queue::read || in.queue == Queue::write; }

  void issue(size_t i) {
    const Instr& in = program_.instrs[i];
    if (is_file(in)) return submit(i);
    for (InstrId wait : file_waits_[i]) lane(wait)->wait(tickets_[static_cast<size_t>(wait)]);
    if ((i & 15) == 0) context_.comm->tick();
    if (!context_.trace) return perform(i);
    int64_t begin = now_ns();
    perform(i);
    context_.trace->span(queue_name(in.queue), launches_[i].label, begin, now_ns());
  }

  void submit(size_t i) {
    IoRequest request = io_request(launches_[i]);
    if (!file_waits_[i].empty()) {
      request.ready = [this, i] {
        for (InstrId wait : file_waits_[i]) lane(wait)->wait(tickets_[static_cast<size_t>(wait)]);
      };
    }
    IoLane* target = program_.instrs[i].queue == Queue::read ? context_.read_lane : context_.write_lane;
    tickets_[i] = target->submit(std::move(request));
    last_[target == context_.write_lane] = tickets_[i];
  }

  IoLane* lane(InstrId id) const {
    return program_.instrs[static_cast<size_t>(id)].queue == Queue::read ? context_.read_lane
                                                                         : context_.write_lane;
  }

  void drain() {
    if (last_[0] != 0) context_.read_lane->wait(last_[0]);
    if (last_[1] != 0) context_.write_lane->wait(last_[1]);
  }

  std::vector<uint64_t> tickets_;
  std::vector<std::vector<InstrId>> file_waits_;
  uint64_t last_[2] = {0, 0};
};

}  // namespace

std::unique_ptr<Executor> make_executor(const Program& program, ExecContext context) {
  return std::make_unique<InOrderExecutor>(program, std::move(context));
}

}  // namespace ds
