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

// The executor that make_executor() returns. The calling thread submits each instruction to its
// queue, in issue order. An event is recorded only if another queue waits for it, and no queue
// waits for an immediate queue. If all queues are immediate, only file transfers are ever in
// flight.
//
// Every wait is for an instruction that was submitted earlier. So the work can always be completed
// in the order of submission, and queues never wait for each other in a cycle.
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
    // Queues may hold work that uses members of this object.
    for (DeviceQueue* queue : context_.queues->threads()) queue->finish();
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
    // The queue of the instruction, or null if it is a file transfer.
    DeviceQueue* queue = nullptr;
    // The micro-steps in which the instruction takes part.
    MicroFilter when;
    bool waits = false, records = false;
  };
  // Waits and events of an instruction. They are not part of Place because most instructions have
  // none.
  struct Sync {
    // The waits that the executor performs.
    std::vector<Wait> waits;
    // The events that the instruction records if other queues wait for it. A wait refers to the
    // latest round, so every round records the same event. An instruction of the next run may wait
    // for a save of this run after the next run has submitted the save again, so a save alternates
    // between two events from run to run.
    std::unique_ptr<Event> event[2];
  };
  // A guard that names the work that this thread submits during its lifetime, for a profiler that
  // watches the device.
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
  // The tickets of the last transfers on the two lanes.
  struct Tickets {
    uint64_t read = 0, write = 0;
  };
  // A traced instruction of a queue that measures times, between two instants.
  struct Noted {
    size_t number = 0;
    std::unique_ptr<Instant> begin, end;
  };

  // Returns the issue number of a position, in the type that queues use.
  size_t number_at(const Position& at) const {
    return static_cast<size_t>(issue_number(program_, at));
  }

  // Returns the event to which a wait refers, of this run or of the run before.
  const Event& event(const Wait& wait) const {
    return *event_of(wait.instr, odd_ != wait.run_before);
  }
  Event* event_of(InstrId i, bool odd) const {
    const Sync& sync = syncs_[i];
    return sync.event[odd && sync.event[1]].get();
  }

  // Returns the queue of an instruction, or null if it is a file transfer.
  DeviceQueue* queue_of(InstrId i) const { return context_.queues->of(program_.instrs[i].queue); }

  // Keeps only the waits that are needed. Waits for an immediate queue or for the instruction's own
  // queue are dropped. Of several waits of the same kind for one queue, only the wait for the
  // latest instruction is kept.
  void find_waits(InstrId i) {
    std::vector<Wait>& out = syncs_[i].waits;
    places_[i].queue = queue_of(i);
    places_[i].when = program_.instrs[i].when;
    for (const Wait& wait : program_.instrs[i].waits) {
      DeviceQueue* other = queue_of(wait.instr);
      if (other && (other->immediate() || other == queue_of(i))) continue;
      auto same = std::ranges::find_if(out, [&](const Wait& w) {
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

  // Creates the events that a wait needs.
  void mark(const Wait& wait) {
    auto& event = syncs_[wait.instr].event;
    places_[wait.instr].records = true;
    DeviceQueue* queue = queue_of(wait.instr);
    for (int k = 0; k < (wait.run_before ? 2 : 1); ++k) {
      if (!event[k]) event[k] = queue ? queue->make_event() : std::make_unique<TicketEvent>();
    }
  }

  // Issues the instructions up to `end`, line by line, where a line is a stretch without a jump. If
  // a queue has failed, its error already names the instruction. Any other error gets the name of
  // the instruction that is being issued.
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
      if (context_.queues->device().faults().failed()) throw;
      fail(at.instr, error);
    }
    if (position_ == program_.end()) {
      if (last_.read != 0) context_.read_lane->wait(last_.read);
      if (!context_.tail) settle();
      position_ = {};
    }
  }

  // Issues one instruction. An instruction that does not take part in this micro-step still waits
  // and records its event, because other queues depend on the event.
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

  // Submits one instruction to its queue. If the queue is immediate and the run is traced, the span
  // is measured here.
  void perform(const Position& at, InstrId behind, DeviceQueue& queue) {
    if (queue.marks()) return give_marked(at, behind, queue);
    if (!traced_ || !queue.immediate()) return give(at, queue);
    int64_t begin = now_ns();
    give(at, queue);
    tell_span(number_at(at), begin, now_ns());
  }

  // Submits work to a queue with marks: the graph of the piece that begins with this instruction
  // or, without a graph, the instruction alone, between two instants if the run is traced. Then
  // marks the queue. Instructions up to `whole` have already been submitted with a graph, so only
  // their bytes are counted.
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

  // Relates the device's clock to the host's clock: notes an instant on an idle queue and reads the
  // host's clock directly afterwards.
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

  // Returns the next pair of instants, or null if the queue does not measure times. Later runs use
  // the instants again.
  Noted* next_noted(const Position& at, const DeviceQueue& queue) {
    if (noted_count_ == noted_.size())
      noted_.push_back({0, queue.make_instant(), queue.make_instant()});
    Noted& next = noted_[noted_count_];
    if (!next.begin || !next.end) return nullptr;
    next.number = number_at(at);
    ++noted_count_;
    return &next;
  }

  // Adds the spans of noted instructions to the trace. All queues must be idle. A run that fails
  // adds no spans.
  void tell_spans() {
    for (size_t i = 0; i < noted_count_; ++i) {
      const Noted& noted = noted_[i];
      const int64_t begin = zero_ns_ + noted.begin->ns_since(*zero_);
      tell_span(noted.number, begin, begin + noted.end->ns_since(*noted.begin));
    }
    noted_count_ = 0;
  }

  // Returns the piece that begins here. Returns null if no piece begins, if the piece extends
  // beyond this line, or if this run uses no graphs.
  const Captures::Piece* piece_at(const Position& at, InstrId behind) const {
    if (!captures_ || traced_ || check_ || context_.scalars->absent != 0) return nullptr;
    const Captures::Piece* piece = captures_->begins(at.instr);
    return piece && piece->last < behind ? piece : nullptr;
  }

  // Shows progress to the other ranks while this thread computes. If collectives run on a thread,
  // other threads may use the communicator only while that thread is idle.
  void show_progress() {
    const RankQueues& queues = *context_.queues;
    if (inline_ || !queues.of(Queue::comm)->runs_host_code()) return context_.comm->tick();
    if (!queues.of(Queue::compute)->immediate()) return;
    queues.of(Queue::comm)->record(comm_tail());
    if (comm_tail().done()) context_.comm->tick();
  }

  // Returns an event that shows whether the queue of collectives has work.
  Event& comm_tail() {
    if (!comm_tail_) comm_tail_ = context_.queues->of(Queue::comm)->make_event();
    return *comm_tail_;
  }

  // Waits until only file transfers are in flight. If collectives run on a thread, that thread
  // waits for the other queues, so that the rank continues to show progress, and this thread waits
  // for that thread. Otherwise this thread waits for all queues.
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

  // Waits for one queue after the other. Shows progress after each wait and every 50 ms.
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

  // After an error, every queue finishes its current task and drops the rest. The other ranks are
  // aborted before this thread waits, because a collective on a queue may wait for them.
  void stop(const std::exception& error) {
    context_.queues->device().faults().fail(std::current_exception());
    context_.comm->abort(error.what());
    for (DeviceQueue* queue : context_.queues->threads()) queue->finish();
  }

  // Submits a transfer to its lane. A transfer that does not take part in this micro-step is
  // submitted with 0 bytes, so that the order of the lane does not change.
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

  // Returns a function that performs the waits of a transfer. It may be called after this executor
  // has been destroyed, because it refers only to lanes and queues, which live longer.
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

  // Whether all queues are immediate, so that this thread does everything except file transfers.
  const bool inline_;
  IdVector<InstrId, Place> places_;
  IdVector<InstrId, Sync> syncs_;
  // Whether a profiler watches the device.
  const bool ranges_;
  // Null if inline_, in which case no run uses graphs.
  std::unique_ptr<Captures> captures_;
  // The last instruction of the latest graph of each queue.
  PerQueue<Position> whole_;
  // Changes with every run, and selects one of the two events of a save.
  bool odd_ = false;
  // Whether this run is traced.
  bool traced_ = false;
  // The noted instructions. Entries from noted_count_ on are left from earlier runs, to be used
  // again.
  std::vector<Noted> noted_;
  // The number of entries of noted_ that belong to this run.
  size_t noted_count_ = 0;
  // The instant of the device that corresponds to zero_ns_ on the host's clock.
  std::unique_ptr<Instant> zero_;
  int64_t zero_ns_ = 0;
  // The last transfers that were submitted.
  Tickets last_;
  // The event of comm_tail().
  std::unique_ptr<Event> comm_tail_;
};

}  // namespace

std::unique_ptr<Executor> make_executor(const Program& program, ExecContext context) {
  return std::make_unique<QueueExecutor>(program, std::move(context));
}

}  // namespace ds
