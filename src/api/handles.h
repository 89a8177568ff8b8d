#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "api/boundary.h"
#include "comm/comm_thread.h"
#include "comm/communicator.h"
#include "core/config/config.h"
#include "core/device/stream.h"
#include "engine/delegate.h"
#include "engine/engine.h"
#include "run/plan_fit.h"

// What the opaque handles of ds.h hold. A handle shares what it uses, so handles may be destroyed
// in any order.

struct ds_comm : ds::Handle {
  std::shared_ptr<ds::Communicator> comm;

  void hold(std::shared_ptr<ds::Communicator> made) {
    callbacks = made ? made->callback_threads() : nullptr;
    comm = std::move(made);
  }
};

struct ds_work : ds::Handle {
  std::shared_ptr<ds::Work> work;
};

// Elements in memory of the host or of a device. owner keeps data alive; it is empty when the
// caller lent the memory.
struct ds_tensor : ds::Handle {
  ds_dtype dtype = DS_DTYPE_NONE;
  std::vector<int64_t> dims, strides;  // strides in elements
  int64_t numel = 1;
  void* data = nullptr;                // the element at index 0
  bool readonly = false;               // another library allows reading only
  std::shared_ptr<ds::Device> device;  // null: the host
  std::shared_ptr<void> owner;         // ends before the device

  size_t bytes() const { return static_cast<size_t>(numel * ds::size_of(dtype)); }
};

struct ds_stream : ds::Handle {
  ds::StreamRef stream;
};

struct ds_graph : ds::Handle {
  ds::Graph graph;
};

struct ds_plan : ds::Handle {
  ds::PlanSource source;
  ds::MadePlan made;
  mutable std::once_flag asked;  // whether it fits, which takes other plans to say
  mutable ds::PlanFit fit;
};

// Members are destroyed in reverse order: the engine before its communicator.
struct ds_engine : ds::Handle {
  std::shared_ptr<ds::Communicator> comm;
  std::unique_ptr<ds::Engine> native;  // one of the two
  std::unique_ptr<ds::DelegateEngine> delegate;
};

namespace ds {

// A tensor with memory of its own, zero-filled and 64-byte aligned, on the device or, without one,
// on the host.
std::unique_ptr<ds_tensor> own_tensor(DType dtype, std::span<const int64_t> dims,
                                      std::shared_ptr<Device> device = nullptr);

// The stream of a call of this engine; null stays null. Refuses the stream of another device.
StreamRef stream_of(ds_stream* stream, const ds_engine* engine);
// Refuses a tensor on a device that is not this engine's.
void need_device(const ds_tensor& tensor, const ds_engine* engine, const std::string& argument);

// A graph that an engine takes: forward only, with a scalar loss as output 0.
void need_trainable(const Graph& graph);

// visit(the engine behind a handle), in either mode.
template <typename Visit>
decltype(auto) either(const ds_engine* engine, Visit visit) {
  const ds_engine& handle = need(engine, "engine");
  return handle.native ? visit(*handle.native) : visit(*handle.delegate);
}
// The parts of an engine in either mode.
inline Runtime& runtime(const ds_engine* engine) {
  return either(engine, [](auto& e) -> Runtime& { return e.runtime(); });
}
inline const StepControl& control(const ds_engine* engine) {
  return either(engine, [](auto& e) -> const StepControl& { return e.control(); });
}
inline StateStore& store(const ds_engine* engine) {
  return either(engine, [](auto& e) -> StateStore& { return e.store(); });
}
inline Checkpoints& checkpoints(const ds_engine* engine) {
  return either(engine, [](auto& e) -> Checkpoints& { return e.checkpoints(); });
}

// The engine of a handle in native mode; in delegate mode `call` is refused.
Engine& native(const ds_engine* engine, const char* call);
// The same in delegate mode; in native mode `call` is refused.
DelegateEngine& delegate(const ds_engine* engine, const char* call);

}  // namespace ds
