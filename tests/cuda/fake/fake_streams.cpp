// The calls of the driver in software for streams, events, modules and graphs (fake_cuda.cpp).
#include "cuda/lane/lane.h"
#include "fake_driver.h"

using namespace ds::fake_driver;

CUresult cuStreamCreate(CUstream* out, unsigned) {
  BEGIN_CALL();
  *out = reinterpret_cast<CUstream>(new Stream());
  ++objects;
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream stream) {
  delete reinterpret_cast<Stream*>(stream);
  --objects;
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream) {
  CUresult wrong = begin_call();
  if (refuses_capture(stream) || forbidden_here()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  stream_of(stream).finish();
  return wrong != CUDA_SUCCESS ? wrong : static_cast<CUresult>(injected().sticky.load());
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  BEGIN_CALL();
  if (refuses_capture(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  std::shared_ptr<Record> record = latest_of(event);
  if (!record) return CUDA_SUCCESS;
  stream_of(stream).give([record] {
    std::unique_lock lock(record->mutex);
    record->changed.wait(lock, [&] { return record->done; });
  });
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent* out, unsigned flags) {
  BEGIN_CALL();
  auto* made = new Event();
  made->timed = (flags & CU_EVENT_DISABLE_TIMING) == 0;
  *out = reinterpret_cast<CUevent>(made);
  ++objects;
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event) {
  delete reinterpret_cast<Event*>(event);
  --objects;
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  BEGIN_CALL();
  if (refuses_capture(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  auto record = std::make_shared<Record>();
  {
    auto* own = reinterpret_cast<Event*>(event);
    std::lock_guard lock(own->mutex);
    own->latest = record;
  }
  stream_of(stream).give([record] {
    std::lock_guard lock(record->mutex);
    record->done = true;
    record->when = std::chrono::steady_clock::now();
    record->changed.notify_all();
  });
  return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float* out, CUevent from, CUevent to) {
  BEGIN_CALL();
  const std::shared_ptr<Record> first = latest_of(from), last = latest_of(to);
  if (!first || !last || !reinterpret_cast<Event*>(from)->timed ||
      !reinterpret_cast<Event*>(to)->timed)
    return CUDA_ERROR_INVALID_HANDLE;
  std::scoped_lock lock(first->mutex, last->mutex);
  if (!first->done || !last->done) return CUDA_ERROR_NOT_READY;
  *out = std::chrono::duration<float, std::milli>(last->when - first->when).count();
  return CUDA_SUCCESS;
}

// Does not count the call: a waiting thread polls as often as time allows, so the count would
// differ from run to run.
CUresult cuEventQuery(CUevent event) {
  if (CUresult wrong = state_of_call(); wrong != CUDA_SUCCESS) return wrong;
  if (forbidden_here()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  std::shared_ptr<Record> record = latest_of(event);
  if (!record) return CUDA_SUCCESS;
  std::lock_guard lock(record->mutex);
  return record->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuModuleLoadData(CUmodule* out, const void* image) {
  BEGIN_CALL();
  *out = static_cast<CUmodule>(const_cast<void*>(image));
  ++objects;
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule) {
  --objects;
  return CUDA_SUCCESS;
}

// Every module contains every function.
CUresult cuModuleGetFunction(CUfunction* out, CUmodule, const char* name) {
  BEGIN_CALL();
  const lane::Entry* entry = lane::find(name);
  if (!entry) return CUDA_ERROR_NOT_FOUND;
  *out = reinterpret_cast<CUfunction>(const_cast<lane::Entry*>(entry));
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) {
  BEGIN_CALL();
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void** args, void** extra) {
  BEGIN_CALL();
  if (extra || grid_x == 0 || grid_y == 0 || grid_z == 0 || block_x * block_y * block_z > 1024 ||
      block_x * block_y * block_z == 0 || grid_y > 65535 || grid_z > 65535 ||
      shared_bytes > 227 * 1024)
    return CUDA_ERROR_INVALID_VALUE;
  const auto* entry = reinterpret_cast<const lane::Entry*>(function);
  bool foreign = false;
  std::vector<uint64_t> words = reached(args[0], entry->args_bytes, &foreign);
  if (foreign) std::fprintf(stderr, "fake_cuda: %s uses memory of another device\n", entry->name);
  return perform(stream, [=, words = std::move(words)](CUstream on) {
    const int64_t number = ++injected().launches;
    const bool fails = injected_now("launch", number);
    give_work(on, [=] {
      try {
        if (foreign) injected().sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
        if (foreign) return;
        if (fails) injected().sticky = CUDA_ERROR_LAUNCH_FAILED;
        if (!fails)
          entry->launch(words.data(), {grid_x, grid_y, grid_z}, {block_x, block_y, block_z},
                        shared_bytes, static_cast<uint64_t>(number));
      } catch (const std::exception& error) {
        std::fprintf(stderr, "fake_cuda: %s: %s\n", entry->name, error.what());
        injected().sticky = CUDA_ERROR_LAUNCH_FAILED;
      }
    });
  });
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned) {
  BEGIN_CALL();
  auto* word = reinterpret_cast<void*>(address);
  if (address % sizeof value != 0 || (!in_device(word) && !is_pinned(word)))
    return CUDA_ERROR_INVALID_VALUE;
  if (refuses_capture(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  ++injected().marks;
  auto* target = static_cast<uint32_t*>(fake_cuda_reach(word));
  give_work(stream,
            [=] { std::atomic_ref<uint32_t>(*target).store(value, std::memory_order_release); });
  return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
  BEGIN_CALL();
  if (!stream || mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL || capturing_here ||
      stream_of(stream).capture)
    return CUDA_ERROR_ILLEGAL_STATE;
  capturing_here = new Capture();
  stream_of(stream).capture = capturing_here;
  return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* out) {
  *out = nullptr;
  const CUresult wrong = begin_call();
  if (stream_of(stream).capture != capturing_here || !capturing_here)
    return CUDA_ERROR_ILLEGAL_STATE;
  std::unique_ptr<Capture> own(std::exchange(capturing_here, nullptr));
  stream_of(stream).capture = nullptr;
  if (wrong != CUDA_SUCCESS) return wrong;
  if (!own->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  auto graph = std::make_unique<Graph>();
  graph->work = std::move(own->work);
  *out = reinterpret_cast<CUgraph>(graph.release());
  ++objects;
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
  delete reinterpret_cast<Graph*>(graph);
  --objects;
  return CUDA_SUCCESS;
}

CUresult cuGraphInstantiate(CUgraphExec* out, CUgraph graph, unsigned long long) {
  BEGIN_CALL();
  if (injected_now("instantiate", ++injected().graphs)) return CUDA_ERROR_OUT_OF_MEMORY;
  auto made = std::make_unique<Graph>();
  made->work = reinterpret_cast<Graph*>(graph)->work;
  *out = reinterpret_cast<CUgraphExec>(made.release());
  ++objects;
  ++live_graphs;
  return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream) {
  BEGIN_CALL();
  if (refuses_capture(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (injected_now("replay", ++injected().replays)) {
    injected().sticky = CUDA_ERROR_LAUNCH_FAILED;
    return CUDA_ERROR_LAUNCH_FAILED;
  }
  auto* own = reinterpret_cast<Graph*>(graph);
  ++*own->running;
  for (const Work& work : own->work) work(stream);
  stream_of(stream).give([running = own->running] { --*running; });
  return CUDA_SUCCESS;
}

// Aborts if a launch of the graph is still running, which would be undefined behaviour.
CUresult cuGraphExecDestroy(CUgraphExec graph) {
  auto* own = reinterpret_cast<Graph*>(graph);
  if (*own->running != 0) {
    std::fprintf(stderr, "fake_cuda: a graph was destroyed while it was running\n");
    std::abort();
  }
  delete own;
  --objects;
  --live_graphs;
  return CUDA_SUCCESS;
}
