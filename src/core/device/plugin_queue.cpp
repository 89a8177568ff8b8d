// Problem: a plugin offers streams, events and memory in C. They must work together with queues
// that are threads of the host, and an error of one queue must end all queues.
//
// Invariant: the host never blocks a stream. A stream waits for another stream by itself. A thread
// waits for a stream by polling the event, so that it sees an error of another queue at once. If a
// stream must wait for a thread's event, the calling thread waits before it submits more work to
// the stream. The awaited work was submitted earlier, so the queues cannot deadlock.
//
// Cost: each Event owns one event of the plugin and records it again. Only if somebody still waits
// for the previous record does it create another event of the plugin.
#include "core/device/plugin_queue.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <variant>
#include <vector>

#include "core/base/attrs.h"
#include "core/base/element_run.h"
#include "core/device/view.h"

namespace ds {
namespace {

// The three overloads of plain() turn arguments into the structs of ds_plugin.h. The structs point
// into the arguments and live for one call.
ds_plugin_view plain(const TensorView& view) {
  return {
      view.data, view.dtype, view.rank, {view.dims[0], view.dims[1], view.dims[2], view.dims[3]}};
}

std::vector<ds_plugin_view> plain(std::span<const TensorView> in, std::span<const TensorView> out) {
  std::vector<ds_plugin_view> views;
  views.reserve(in.size() + out.size());
  for (const TensorView& view : in) views.push_back(plain(view));
  for (const TensorView& view : out) views.push_back(plain(view));
  return views;
}

std::vector<ds_plugin_attr> plain(const Attrs& attrs) {
  std::vector<ds_plugin_attr> out;
  for (const auto& [key, value] : attrs.items()) {
    ds_plugin_attr attr{};
    attr.key = key.c_str();
    attr.kind = static_cast<int32_t>(value.index());
    if (const auto* integer = std::get_if<int64_t>(&value)) attr.integer = *integer;
    if (const auto* real = std::get_if<double>(&value)) attr.real = *real;
    if (const auto* text = std::get_if<std::string>(&value)) attr.text = text->c_str();
    if (const auto* integers = std::get_if<std::vector<int64_t>>(&value)) {
      attr.integers = integers->data();
      attr.integers_count = integers->size();
    }
    out.push_back(attr);
  }
  return out;
}

// One record of an event. It owns an event of the plugin.
class Mark {
 public:
  explicit Mark(const PluginBase& device, bool timed = false)
      : device_(device),
        event_(device.create<ds_plugin_event>("an event", device.table().event_create,
                                              device.handle(), timed ? 1 : 0)) {}
  ~Mark() { device_.table().event_destroy(event_); }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

  ds_plugin_event* event() const { return event_; }
  bool done() const {
    int32_t done = 0;
    device_.check(device_.table().done(event_, &done), "work of a queue");
    return done != 0;
  }
  int64_t ns_since(const Mark& other) const {
    int64_t ns = 0;
    device_.check(device_.table().elapsed(other.event_, event_, &ns), "the time of an event");
    return ns;
  }

 private:
  const PluginBase& device_;
  ds_plugin_event* const event_;
};

struct PluginInstant final : Instant {
  explicit PluginInstant(const PluginBase& device) : mark(device, true) {}
  int64_t ns_since(const Instant& other) const override {
    return mark.ns_since(static_cast<const PluginInstant&>(other).mark);
  }
  const Mark mark;
};

// An event that may be recorded again while somebody still waits for its previous record. A waiter
// shares ownership of the Mark of its record. As long as it does, the next record needs a new Mark.
class PluginEvent final : public Event {
 public:
  explicit PluginEvent(const PluginBase& device) : device_(device) {}
  // Returns the Mark for a new record on `queue`: the current one, or a new one if somebody waits
  // for the current one.
  Mark& renew(const PluginQueue& queue) {
    if (!mark_ || mark_.use_count() > 1) mark_ = std::make_shared<Mark>(device_);
    queue_ = &queue;
    return *mark_;
  }
  const Mark* mark() const { return mark_.get(); }

  bool done() const override {
    if (!mark_) return true;
    queue_->check_faults();
    return mark_->done();
  }
  void synchronize() const override {
    auto ended = waiter();
    while (!ended(50'000'000)) continue;
  }
  std::function<bool(int64_t)> waiter() const override {
    if (!mark_) return [](int64_t) { return true; };
    return [mark = mark_, queue = queue_](int64_t ns) {
      // A sleep lasts about 50 us longer than requested, so during the first kAwake of a wait the
      // thread only yields. After that, each sleep is 5 us longer than the previous one, up to
      // kMost, which bounds how late the end is noticed.
      constexpr std::chrono::microseconds kAwake{100}, kMost{200};
      const auto begin = std::chrono::steady_clock::now(),
                 end = begin + std::chrono::nanoseconds(ns);
      std::chrono::microseconds pause{0};
      for (;;) {
        queue->check_faults();
        if (mark->done()) return true;
        const auto now = std::chrono::steady_clock::now();
        if (now >= end) return false;
        if (now - begin < kAwake) {
          std::this_thread::yield();
        } else {
          std::this_thread::sleep_for(pause =
                                          std::min(kMost, pause + std::chrono::microseconds(5)));
        }
      }
    };
  }

 private:
  const PluginBase& device_;
  std::shared_ptr<Mark> mark_;
  const PluginQueue* queue_ = nullptr;
};

class PluginKernel final : public Kernel {
 public:
  PluginKernel(const PluginBase& device, ds_plugin_kernel* kernel)
      : device_(device), kernel_(kernel) {}
  ~PluginKernel() override { device_.table().kernel_destroy(kernel_); }
  void run(const LaunchArgs&) const override {
    raise(DS_ERROR_INTERNAL, "a kernel of device '{}' runs on its queues only", device_.name());
  }
  ds_plugin_kernel* get() const { return kernel_; }

 private:
  const PluginBase& device_;
  ds_plugin_kernel* const kernel_;
};

class PluginGraph final : public CapturedWork {
 public:
  PluginGraph(const PluginBase& device, ds_plugin_graph* graph) : device_(device), graph_(graph) {}
  ~PluginGraph() override { device_.table().graph_destroy(graph_); }
  ds_plugin_graph* get() const { return graph_; }

 private:
  const PluginBase& device_;
  ds_plugin_graph* const graph_;
};

}  // namespace

PluginQueue::PluginQueue(PluginBase& device, const std::string& name)
    : device_(device),
      queue_(device.create<ds_plugin_queue>("a queue", device.table().queue_create, device.handle(),
                                            name.c_str())) {
  device_.faults().add(this);
}

PluginQueue::~PluginQueue() {
  device_.faults().remove(this);
  table().queue_destroy(queue_);
}

// A stream runs asynchronously, so the status of a call reports an error of the call's arguments or
// of earlier work.
void PluginQueue::give(int32_t status, std::string_view call) {
  check_faults();
  device_.check(status, call);
}

// All kernels of the queue share one scratch memory, as large as the largest of them needs. The
// memory grows here, before the new kernel can run. Its address does not change, so launches that
// were submitted earlier stay valid.
std::unique_ptr<Kernel> PluginQueue::make_kernel(const KernelRequest& request) {
  std::vector<ds_plugin_view> views = plain(request.in, request.out);
  for (ds_plugin_view& view : views) view.data = nullptr;
  std::vector<ds_plugin_attr> attrs = plain(request.attrs);
  std::vector<ds_plugin_run> runs;
  for (const ElementRun& run : request.runs)
    runs.push_back({run.begin, run.end, run.missed, run.group, run.param, run.element});
  const std::string op(request.op);
  const size_t in = request.in.size();
  const ds_plugin_query query{sizeof query, op.c_str(),         views.data(), views.data() + in,
                              in,           request.out.size(), attrs.data(), attrs.size(),
                              runs.data(),  runs.size()};
  int64_t scratch = 0;
  ds_plugin_kernel* made = nullptr;
  int32_t status = table().kernel_create(device_.handle(), &query, &scratch, &made);
  if (status == DS_PLUGIN_REFUSED) {
    raise(DS_ERROR_UNSUPPORTED, "device '{}' has no kernel that runs '{}' ({})", device_.name(), op,
          table().message());
  }
  device_.check(status, "a kernel of '" + op + "'");
  auto kernel = std::make_unique<PluginKernel>(device_, made);
  this->scratch(scratch);
  return kernel;
}

std::byte* PluginQueue::scratch(int64_t bytes) {
  if (bytes > scratch_bytes()) {
    if (!scratch_) scratch_ = std::make_unique<PluginMemory>(device_, 0);
    scratch_->grow(bytes);
  }
  return scratch_ ? scratch_->address() : nullptr;
}

void PluginQueue::launch(const Kernel& kernel, const LaunchArgs& args) {
  const auto* own = dynamic_cast<const PluginKernel*>(&kernel);
  ensure(own, "a kernel of the host was launched on a queue of device '{}'", device_.name());
  std::vector<ds_plugin_view> views = plain(args.in, args.out);
  ds_plugin_launch launch{};
  launch.struct_size = sizeof launch;
  launch.in = views.data();
  launch.out = views.data() + args.in.size();
  launch.in_count = args.in.size();
  launch.out_count = args.out.size();
  launch.scalars = args.scalars;
  launch.leaf = args.leaf;
  launch.missed = args.run.missed;
  launch.param = args.run.param;
  launch.element = args.run.element;
  launch.group = args.run.group;
  launch.scratch = scratch_ ? scratch_->address() : nullptr;
  give(table().kernel_launch(own->get(), queue_, &launch), "a launch");
}

// The capture is ended even if another queue has failed, because the stream is unusable until then.
std::unique_ptr<CapturedWork> PluginQueue::end_capture() {
  ds_plugin_graph* made = nullptr;
  const int32_t status = table().capture_end(queue_, &made);
  auto work = std::make_unique<PluginGraph>(device_, made);
  give(status, "a capture");
  return work;
}

void PluginQueue::launch(const CapturedWork& work) {
  give(table().graph_launch(static_cast<const PluginGraph&>(work).get(), queue_),
       "a launch of a graph");
}

std::unique_ptr<Event> PluginQueue::make_event() const {
  return std::make_unique<PluginEvent>(device_);
}

std::unique_ptr<Instant> PluginQueue::make_instant() const {
  return std::make_unique<PluginInstant>(device_);
}

void PluginQueue::record(Event& event) {
  auto& own = static_cast<PluginEvent&>(event);
  give(table().record(queue_, own.renew(*this).event()), "an event");
}

void PluginQueue::note(Instant& instant) {
  give(table().record(queue_, static_cast<PluginInstant&>(instant).mark.event()),
       "the time of an event");
}

// The stream itself waits for an event of a stream. For an event of a thread, the calling thread
// waits here. Every 50 ms it checks for errors and reports to the owner of the work that the queue
// is idle.
void PluginQueue::wait(const Event& event) {
  if (const auto* own = dynamic_cast<const PluginEvent*>(&event)) {
    if (own->mark()) give(table().wait(queue_, own->mark()->event()), "a wait");
    return;
  }
  constexpr int64_t kLook = 50'000'000;
  for (auto ended = event.waiter(); !ended(kLook);) {
    check_faults();
    if (owner_) owner_->idle(number_);
  }
}

}  // namespace ds
