#include "exec/executor.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/device/thread_queue.h"
#include "exec/captures.h"
#include "io/request.h"

namespace ds {
namespace {

// Issue order. The calling thread gives each instruction to its queue. An event is recorded only
// where another queue waits, and a queue that is immediate is waited for by nobody: with all of
// them immediate, only files are ever in flight.
//
// Every wait names what was submitted before, so submission order is an order in which all can go
// on, and no queues wait for each other in a circle.
class QueueExecutor final : public Executor {
 public:
  QueueExecutor(const Program& program, ExecContext context)
      : Executor(program, std::move(context)),
        inline_(context_.queues->immediate()),
        places_(program.instrs.size()),
        syncs_(program.instrs.size()),
        ranges_(context_.queues->device().has_ranges()) {
    for (InstrId i : program.instrs.ids()) find_waits(i);
    if (inline_) return;
    captures_ = std::make_unique<Captures>(
        program, *context_.queues, extents_,
        [this](const Position& at, DeviceQueue& queue) { carry_out(at, queue); });
  }

  ~QueueExecutor() override {
    leave_tail();
    for (DeviceQueue* queue : context_.queues->threads())
      queue->finish();  // it may hold what is ours
  }

  void run_to(Position end) override {
    try {
      take_tail();
      send_scalars();
      marks_.begin();
      whole_.fill(Position(InstrId()));
      if (captures_) captures_->begin_run();
      traced_ = context_.trace && context_.trace->on();
      if (traced_) begin_spans();
      if (position_ == Position() && program_.before(position_, end)) odd_ = !odd_;
      go_to(end);
      tell_spans();
      fetch_scalars();
    } catch (const std::exception& error) {
      if (!inline_) stop(error);
      throw;
    }
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
  struct Place {
    DeviceQueue* queue = nullptr;  // null: of files
    MicroFilter when;              // as the instruction has it
    bool waits = false, records = false;
  };
  // Apart from places, because most instructions have none of it.
  struct Sync {
    std::vector<Wait> waits;  // for what other queues do
    // Where an instruction that others wait for records: its latest round, which is the one that a
    // wait means. A save is also waited for in the run after its own, when it may have been
    // submitted again: it records in two places in turn.
    std::unique_ptr<Event> event[2];
  };
  // What this thread gives has a name for a tool that watches.
  class Range {
   public:
    Range(const QueueExecutor& executor, const std::string& label)
        : device_(executor.ranges_ ? &executor.context_.queues->device() : nullptr) {
      if (device_) device_->begin_range(label.c_str());
    }
    ~Range() {
      if (device_) device_->end_range();
    }
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;

   private:
    const Device* const device_;
  };
  struct Tickets {
    uint64_t read = 0, write = 0;
  };
  struct Noted {
    size_t number = 0;
    std::unique_ptr<Instant> begin, end;
  };

  size_t number_at(const Position& at) const {
    return static_cast<size_t>(issue_number(program_, at));
  }

  const Event& event(const Wait& wait) const {
    return *event_of(wait.instr, odd_ != wait.run_before);
  }
  Event* event_of(InstrId i, bool odd) const {
    const Sync& sync = syncs_[i];
    return sync.event[odd && sync.event[1]].get();
  }

  // Null: of files.
  DeviceQueue* queue_of(InstrId i) const { return context_.queues->of(program_.instrs[i].queue); }

  // Leaves out what needs no wait, and of several of one kind for one queue all but the last.
  void find_waits(InstrId i) {
    std::vector<Wait>& out = syncs_[i].waits;
    places_[i].queue = queue_of(i);
    places_[i].when = program_.instrs[i].when;
    for (const Wait& wait : program_.instrs[i].waits) {
      DeviceQueue* other = queue_of(wait.instr);
      if (other && (other->immediate() || other == queue_of(i))) continue;
      auto same = std::find_if(out.begin(), out.end(), [&](const Wait& w) {
        return program_.instrs[w.instr].queue == program_.instrs[wait.instr].queue &&
               w.run_before == wait.run_before && w.round_before == wait.round_before;
      });
      if (same == out.end()) {
        out.push_back(wait);
      } else {
        same->instr = std::max(same->instr, wait.instr);
      }
    }
    for (const Wait& wait : out) mark(wait);
    places_[i].waits = !out.empty();
  }

  void mark(const Wait& wait) {
    auto& event = syncs_[wait.instr].event;
    places_[wait.instr].records = true;
    DeviceQueue* queue = queue_of(wait.instr);
    for (int k = 0; k < (wait.run_before ? 2 : 1); ++k) {
      if (!event[k]) event[k] = queue ? queue->make_event() : std::make_unique<TicketEvent>();
    }
  }

  void go_to(Position end) {
    Position at = position_;
    try {
      while (program_.before(at, end)) {
        InstrId behind = program_.line_end(at, end);
        for (; at.instr < behind; ++at.instr) {
          if (context_.before_instr && program_.takes_part(at))
            context_.before_instr(at.instr.index());
          issue(at, behind);
        }
        at = program_.next({behind - 1, at.round});
      }
      position_ = at;
      at = Position(InstrId(kJoin));
      join();
    } catch (const std::exception& error) {
      if (context_.queues->device().faults().failed())
        throw;  // with the name of its own instruction
      fail(at.instr, error);
    }
    if (position_ == program_.end()) {
      if (last_.read != 0) context_.read_lane->wait(last_.read);
      if (!context_.tail) settle();
      position_ = {};
    }
  }

  // One that has no part in this micro-step still waits: others rely on it.
  void issue(const Position& at, InstrId behind) {
    InstrId i = at.instr;
    const Place& place = places_[i];
    if (!place.queue) return submit(at);
    DeviceQueue& queue = *place.queue;
    if (!inline_ && !queue.immediate()) queue.attribute(this, number_at(at));
    if (place.waits) {
      for (const Wait& wait : syncs_[i].waits) queue.wait(event(wait));
    }
    if (place.when.mask == 0 || program_.takes_part(at)) {
      if (i.number() % 16 == 0) show_progress();
      perform(at, behind, queue);
    }
    if (place.records) queue.record(*event_of(i, odd_));
  }

  // A piece that ends before `behind` is given whole, with its first instruction.
  void perform(const Position& at, InstrId behind, DeviceQueue& queue) {
    if (queue.marks()) return give_marked(at, behind, queue);
    if (!traced_ || !queue.immediate()) return give(at, queue);
    int64_t begin = now_ns();
    give(at, queue);
    tell_span(number_at(at), begin, now_ns());
  }

  void give_marked(const Position& at, InstrId behind, DeviceQueue& queue) {
    const Queue name = program_.instrs[at.instr].queue;
    Position& whole = whole_[name];
    const Captures::Piece* piece = piece_at(at, behind);
    if (const CapturedWork* work = piece ? captures_->work(*piece, at.round) : nullptr) {
      const Range range(*this, piece->label);
      whole = {piece->last, at.round};
      marks_.give(name, at);
      marks_.give(name, whole);
      queue.launch(*work);
      marks_.mark(name);
    }
    if (!program_.before(whole, at)) return count(at);
    const Range range(*this, launches_[at.instr].label);
    marks_.give(name, at);
    Noted* noted = traced_ ? next_noted(at, queue) : nullptr;
    if (noted) queue.note(*noted->begin);
    give(at, queue);
    if (noted) queue.note(*noted->end);
    marks_.mark(name);
  }

  // The device has a clock of its own. Both are read where a queue has nothing to do.
  void begin_spans() {
    noted_count_ = 0;
    for (DeviceQueue* queue : context_.queues->threads()) {
      if (!zero_ && !(zero_ = queue->make_instant())) continue;
      queue->note(*zero_);
      queue->finish();
      zero_ns_ = now_ns();
      return;
    }
  }

  // Null: the queue tells no times. Instants are made before any is noted, and used again by the
  // next run.
  Noted* next_noted(const Position& at, const DeviceQueue& queue) {
    if (noted_count_ == noted_.size())
      noted_.push_back({0, queue.make_instant(), queue.make_instant()});
    Noted& next = noted_[noted_count_];
    if (!next.begin || !next.end) return nullptr;
    next.number = number_at(at);
    ++noted_count_;
    return &next;
  }

  // When all queues are idle. A run that fails tells none.
  void tell_spans() {
    for (size_t i = 0; i < noted_count_; ++i) {
      const Noted& noted = noted_[i];
      const int64_t begin = zero_ns_ + noted.begin->ns_since(*zero_);
      tell_span(noted.number, begin, begin + noted.end->ns_since(*noted.begin));
    }
    noted_count_ = 0;
  }

  // Null: what it begins, if anything, has no graph in this run.
  const Captures::Piece* piece_at(const Position& at, InstrId behind) const {
    if (!captures_ || traced_ || check_ || context_.scalars->absent != 0) return nullptr;
    const Captures::Piece* piece = captures_->begins(at.instr);
    return piece && piece->last < behind ? piece : nullptr;
  }

  // While this thread computes. Once collectives have a thread, only that one may use their group,
  // unless it has nothing to do.
  void show_progress() {
    const RankQueues& queues = *context_.queues;
    if (inline_ || !queues.of(Queue::comm)->runs_host_code()) return context_.comm->tick();
    if (!queues.of(Queue::compute)->immediate()) return;
    queues.of(Queue::comm)->record(comm_tail());
    if (comm_tail().done()) context_.comm->tick();
  }

  Event& comm_tail() {
    if (!comm_tail_) comm_tail_ = context_.queues->of(Queue::comm)->make_event();
    return *comm_tail_;
  }

  // Nothing is in flight then but files. The thread of collectives waits for the other queues and
  // this thread for it, so that the rank goes on showing its progress. Without such a thread this
  // one waits for all.
  void join() {
    if (inline_) return;
    const RankQueues& queues = *context_.queues;
    DeviceQueue& comm = *queues.of(Queue::comm);
    if (!comm.runs_host_code()) return join_here();
    comm.attribute(this, kJoin);
    for (DeviceQueue* queue : queues.threads()) {
      if (queue == &comm) continue;
      std::unique_ptr<Event> tail = queue->make_event();
      queue->record(*tail);
      comm.wait(*tail);
    }
    comm.record(comm_tail());
    comm_tail().synchronize();
  }

  void join_here() {
    constexpr int64_t kLook = 50'000'000;
    std::vector<std::unique_ptr<Event>> tails;
    for (DeviceQueue* queue : context_.queues->threads()) {
      queue->attribute(this, kJoin);
      tails.push_back(queue->make_event());
      queue->record(*tails.back());
    }
    for (const auto& tail : tails) {
      for (auto ended = tail->waiter(); !ended(kLook);) idle(kJoin);
      context_.comm->tick();
    }
  }

  // After an error: every queue ends what it does, and does nothing of what it was given. The other
  // ranks are told first, because a collective may wait for them.
  void stop(const std::exception& error) {
    context_.queues->device().faults().fail(std::current_exception());
    context_.comm->abort(error.what());
    for (DeviceQueue* queue : context_.queues->threads()) queue->finish();
  }

  void submit(const Position& at) {
    InstrId i = at.instr;
    IoRequest request = io_request(at);
    if (!program_.takes_part(at)) request.bytes = 0;
    if (places_[i].waits) request.ready = ready(i);
    bool read = program_.instrs[i].queue == Queue::read;
    IoLane& lane = *(read ? context_.read_lane : context_.write_lane);
    uint64_t ticket = lane.submit(std::move(request));
    (read ? last_.read : last_.write) = ticket;
    if (Event* mark = event_of(i, odd_))
      static_cast<TicketEvent*>(mark)->record(lane.tasks(), ticket);
  }

  // Waits for what a transfer awaits; may be called when this executor is no more: lanes and queues
  // live longer.
  std::function<void()> ready(InstrId i) const {
    std::vector<std::function<bool(int64_t)>> all;
    for (const Wait& wait : syncs_[i].waits) all.push_back(event(wait).waiter());
    return [all = std::move(all)] {
      constexpr int64_t kLook = 50'000'000;
      for (const auto& done : all) {
        while (!done(kLook)) continue;
      }
    };
  }

  const bool inline_;  // the thread that issues does all but files
  IdVector<InstrId, Place> places_;
  IdVector<InstrId, Sync> syncs_;
  const bool ranges_;                   // a tool watches
  std::unique_ptr<Captures> captures_;  // null: a run never has graphs
  PerQueue<Position> whole_;            // the end of the piece that the queue was given last
  bool odd_ = false;                    // changes with every run
  bool traced_ = false;                 // this run
  std::vector<Noted> noted_;            // of a traced run, by queues that tell times
  size_t noted_count_ = 0;              // of this run
  std::unique_ptr<Instant> zero_;       // when the host's clock read zero_ns_
  int64_t zero_ns_ = 0;
  Tickets last_;  // of the lanes
  std::unique_ptr<Event> comm_tail_;
};

}  // namespace

std::unique_ptr<Executor> make_executor(const Program& program, ExecContext context) {
  return std::make_unique<QueueExecutor>(program, std::move(context));
}

}  // namespace ds
