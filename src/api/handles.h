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
#include "engine/body.h"
#include "engine/delegate.h"
#include "engine/engine.h"
#include "run/plan_fit.h"

// This header defines the contents of the opaque handles of ds.h. A handle shares what it uses, so
// handles may be destroyed in any order.

// A rank's place in a group. Engines share the communicator.
struct ds_comm : ds::Handle {
  std::shared_ptr<ds::Communicator> comm;

  // Stores the communicator and its set of callback threads.
  void hold(std::shared_ptr<ds::Communicator> made) {
    callbacks = made ? made->callback_threads() : nullptr;
    comm = std::move(made);
  }
};

// A started collective. It continues if its handle is destroyed.
struct ds_work : ds::Handle {
  std::shared_ptr<ds::Work> work;
};

// A tensor in host or device memory. `owner` keeps `data` alive; it is empty if the caller has lent
// the memory.
struct ds_tensor : ds::Handle {
  ds_dtype dtype = DS_DTYPE_NONE;
  // Dimensions and strides, both in elements.
  std::vector<int64_t> dims, strides;
  int64_t numel = 1;
  // The address of the element at index 0.
  void* data = nullptr;
  // Whether the library that owns the memory allows only reading it.
  bool readonly = false;
  // The device of the memory, or null for the host.
  std::shared_ptr<ds::Device> device;
  // Declared after `device`, so that the memory is freed before the device.
  std::shared_ptr<void> owner;

  // Returns the bytes of all elements, without gaps.
  size_t bytes() const { return static_cast<size_t>(numel * ds::size_of(dtype)); }
};

// A queue of work on the device of an engine. It may outlive the engine.
struct ds_stream : ds::Handle {
  ds::StreamRef stream;
};

// A graph that the caller builds. Engines and plans copy the graph.
struct ds_graph : ds::Handle {
  ds::Graph graph;
};

// A compiled plan, with the configuration and graph from which it was created.
struct ds_plan : ds::Handle {
  ds::PlanSource source;
  ds::MadePlan made;
  // Guards `fit`, which is computed on first use, because that requires compiling other plans.
  mutable std::once_flag asked;
  mutable ds::PlanFit fit;
};

// An engine of either mode. Members are destroyed in reverse order, so the engine ends before its
// communicator.
struct ds_engine : ds::Handle {
  std::shared_ptr<ds::Communicator> comm;
  // Exactly one of the two engines exists.
  std::unique_ptr<ds::Engine> native;
  std::unique_ptr<ds::DelegateEngine> delegate;
};

namespace ds {

// Creates a tensor that owns zero-filled memory, aligned to 64 bytes, on the device or, if that is
// null, on the host.
std::unique_ptr<ds_tensor> own_tensor(DType dtype, std::span<const int64_t> dims,
                                      std::shared_ptr<Device> device = nullptr);

// Copies the elements of a tensor to one of the same type and shape. If there is a stream, the
// copies are queued, and the stream keeps both owners alive until the copies are done.
void copy_tensor(const ds_tensor& to, const ds_tensor& from, ds_stream* stream);

// Returns the stream of a handle that was passed to a call of this engine, or null if the handle is
// NULL. Throws if the stream belongs to another device.
StreamRef stream_of(ds_stream* stream, const ds_engine* engine);
// Throws if a tensor is on another device than this engine's.
void need_device(const ds_tensor& tensor, const ds_engine* engine, const std::string& argument);

// Throws unless an engine can train the graph: it must have only the forward part, with a scalar
// loss as output 0.
void need_trainable(const Graph& graph);

// These return the engine of a handle, in either mode, and its parts.
inline EngineBody& body(const ds_engine* engine) {
  const ds_engine& handle = need(engine, "engine");
  return handle.native ? static_cast<EngineBody&>(*handle.native) : *handle.delegate;
}
inline Runtime& runtime(const ds_engine* engine) { return body(engine).runtime(); }
inline const StepControl& control(const ds_engine* engine) { return body(engine).control(); }
inline StateStore& store(const ds_engine* engine) { return body(engine).store(); }
inline Checkpoints& checkpoints(const ds_engine* engine) { return body(engine).checkpoints(); }

// Returns the engine of a handle in native mode. In delegate mode, throws with a message that names
// `call`.
Engine& native(const ds_engine* engine, const char* call);
// Returns the engine of a handle in delegate mode. In native mode, throws with a message that names
// `call`.
DelegateEngine& delegate(const ds_engine* engine, const char* call);

}  // namespace ds
