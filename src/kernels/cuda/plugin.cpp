// Implements the table of ds_plugin.h with driver.h, kernel.h and nccl.h. Each function unpacks its
// plain arguments, calls a function of these headers, and turns every exception into a status and a
// one-line message: no exception crosses the C boundary. The handles of the table are the structs
// below; most own one C++ object.
#include "kernels/cuda/plugin.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <tuple>
#include <vector>

#include "core/base/attrs.h"
#include "core/base/dtype.h"
#include "core/base/element_run.h"
#include "core/base/error.h"
#include "core/base/group_scalars.h"
#include "core/base/round.h"
#include "core/device/scalars.h"
#include "core/device/view.h"
#include "kernels/cuda/blas.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/kernel.h"
#include "kernels/cuda/nccl.h"
#include "kernels/cuda/ranges.h"
#include "kernels/cuda/tree_sum.h"

using ds::cuda::Failure;

struct ds_plugin_device {
  std::shared_ptr<ds::cuda::Device> device;
  bool tf32;
};
struct ds_plugin_arena {
  ds::cuda::Arena arena;
};
struct ds_plugin_queue {
  ds::cuda::DriverStream stream;
};
struct ds_plugin_event {
  ds::cuda::Event event;
};
struct ds_plugin_device_link {
  ds::cuda::Link link;
};
struct ds_plugin_graph {
  ds::cuda::Graph graph;
};
struct ds_plugin_kernel {
  std::unique_ptr<ds::cuda::Kernel> kernel;
  ds::Attrs attrs;
  std::vector<ds::ElementRun> runs;
  // The bytes of the kernel's own scratch memory. The scratch memory of matrix products follows it.
  int64_t scratch_bytes = 0;
};

namespace {

// The message of the last failed call of this thread.
thread_local std::string last_error;

// Runs body() and returns DS_PLUGIN_OK, or the status of the exception that body() throws.
template <typename Body>
int32_t guarded(const Body& body) {
  try {
    body();
    return DS_PLUGIN_OK;
  } catch (const Failure& failure) {
    last_error = failure.what();
    return failure.status();
  } catch (const ds::Error& error) {
    last_error = error.what();
    return error.status() == DS_ERROR_UNSUPPORTED ? DS_PLUGIN_REFUSED : DS_PLUGIN_FAILED;
  } catch (const std::bad_alloc&) {
    last_error = "the host is out of memory";
    return DS_PLUGIN_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    last_error = error.what();
    return DS_PLUGIN_FAILED;
  }
}

// Destroys an object. Errors are ignored, because the caller cannot receive them; a driver that has
// failed reports the failure again at the next call.
template <typename Object>
void destroy(Object* object) {
  guarded([&] { delete object; });
}

const char* message() { return last_error.c_str(); }

int32_t count(int32_t* out) {
  *out = 0;
  return guarded([&] { *out = ds::cuda::device_count(); });
}

int32_t open(int32_t index, int32_t tf32, ds_plugin_device** out) {
  *out = nullptr;
  return guarded([&] { *out = new ds_plugin_device{ds::cuda::Device::open(index), tf32 != 0}; });
}

// Copies a text to an array, truncated to fit and terminated by NUL.
template <size_t N>
void put(char (&to)[N], const std::string& text) {
  size_t size = std::min(text.size(), N - 1);
  std::memcpy(to, text.data(), size);
  to[size] = 0;
}

int32_t info(ds_plugin_device* device, ds_plugin_device_info* out) {
  return guarded([&] {
    ds::cuda::Device& own = *device->device;
    put(out->name, own.product());
    put(out->arch, own.arch());
    put(out->driver, ds::cuda::driver_name());
    put(out->identity, own.identity());
    std::tie(out->free, out->total) = own.memory();
    out->granularity = own.granularity();
    out->captures = ds::cuda::captures() ? 1 : 0;
  });
}

// Selects cuBLASLt or this folder's own kernel for matrix products, once for the process, and
// returns the name of the choice.
const std::string& products() {
  static const std::string chosen = ds::cuda::use_blas();
  return chosen;
}

// Writes the device's part of the numerics key, which names everything on which the bits of results
// depend: architecture, number of multiprocessors, matrix products and TF32.
int32_t numerics(ds_plugin_device* device, char out[128]) {
  return guarded([&] {
    const ds::cuda::Device& own = *device->device;
    put(*reinterpret_cast<char(*)[128]>(out),
        fmt::format("{}/{}/{}{}", own.arch(), own.multiprocessors(), products(),
                    device->tf32 ? "/tf32" : ""));
  });
}

int32_t arena_create(ds_plugin_device* device, int64_t bytes, ds_plugin_arena** out,
                     void** address) {
  *out = nullptr;
  return guarded([&] {
    *out = new ds_plugin_arena{{device->device, bytes}};
    *address = reinterpret_cast<void*>((*out)->arena.address());
  });
}

int32_t arena_grow(ds_plugin_arena* arena, int64_t bytes) {
  return guarded([&] { arena->arena.grow(bytes); });
}

int32_t pin(ds_plugin_device* device, void* host, int64_t bytes) {
  return guarded([&] { ds::cuda::pin(*device->device, host, bytes); });
}

void unpin(ds_plugin_device* device, void* host) {
  guarded([&] { ds::cuda::unpin(*device->device, host); });
}

int32_t owns(ds_plugin_device* device, const void* address, int32_t* out) {
  *out = 0;
  return guarded([&] { *out = ds::cuda::owns(*device->device, address) ? 1 : 0; });
}

int32_t queue_create(ds_plugin_device* device, const char*, ds_plugin_queue** out) {
  *out = nullptr;
  return guarded(
      [&] { *out = new ds_plugin_queue{ds::cuda::DriverStream(device->device, device->tf32)}; });
}

int32_t copy(ds_plugin_queue* queue, void* to, const void* from, int64_t bytes) {
  return guarded([&] {
    queue->stream.copy(to, from, bytes);
    queue->stream.settle();
  });
}

int32_t fill(ds_plugin_queue* queue, void* to, int32_t byte, int64_t bytes) {
  return guarded([&] {
    queue->stream.fill(to, byte, bytes);
    queue->stream.settle();
  });
}

int32_t sum(ds_plugin_queue* queue, const void* const* parts, int32_t parts_count, int32_t dtype,
            float* out, int64_t count) {
  return guarded([&] {
    const ds::TensorView to{out, DS_DTYPE_F32, 1, {count, 1, 1, 1}};
    ds::cuda::tree_sum(queue->stream, {parts, static_cast<size_t>(parts_count)},
                       static_cast<ds::DType>(dtype), to);
  });
}

int32_t event_create(ds_plugin_device* device, int32_t timed, ds_plugin_event** out) {
  *out = nullptr;
  return guarded([&] { *out = new ds_plugin_event{ds::cuda::Event(device->device, timed != 0)}; });
}

int32_t record(ds_plugin_queue* queue, ds_plugin_event* event) {
  return guarded([&] { queue->stream.record(event->event.handle()); });
}

int32_t wait(ds_plugin_queue* queue, ds_plugin_event* event) {
  return guarded([&] { queue->stream.wait(event->event.handle()); });
}

int32_t done(ds_plugin_event* event, int32_t* out) {
  *out = 0;
  return guarded([&] { *out = event->event.done() ? 1 : 0; });
}

int32_t elapsed(ds_plugin_event* from, ds_plugin_event* to, int64_t* out) {
  *out = 0;
  return guarded([&] { *out = to->event.ns_since(from->event); });
}

int32_t finish(ds_plugin_queue* queue) {
  return guarded([&] { queue->stream.finish(); });
}

// Converts views of the table, which are plain structs, to TensorViews.
std::vector<ds::TensorView> views_of(const ds_plugin_view* views, size_t count) {
  std::vector<ds::TensorView> out(count);
  for (size_t i = 0; i < count; ++i) {
    out[i].data = views[i].data;
    out[i].dtype = static_cast<ds::DType>(views[i].dtype);
    out[i].rank = views[i].rank;
    std::copy(std::begin(views[i].dims), std::end(views[i].dims), std::begin(out[i].dims));
  }
  return out;
}

ds::Attrs attrs_of(const ds_plugin_attr* attrs, size_t count) {
  ds::Attrs out;
  for (size_t i = 0; i < count; ++i) {
    const ds_plugin_attr& a = attrs[i];
    // Kinds of attributes: 0 integer, 1 real, 2 text, 3 integers.
    if (a.kind == 0) out.set(a.key, a.integer);
    if (a.kind == 1) out.set(a.key, a.real);
    if (a.kind == 2) out.set(a.key, std::string(a.text));
    if (a.kind == 3)
      out.set(a.key, std::vector<int64_t>(a.integers, a.integers + a.integers_count));
  }
  return out;
}

int32_t kernel_create(ds_plugin_device* device, const ds_plugin_query* query,
                      int64_t* scratch_bytes, ds_plugin_kernel** out) {
  *out = nullptr;
  return guarded([&] {
    auto made = std::make_unique<ds_plugin_kernel>();
    made->attrs = attrs_of(query->attrs, query->attrs_count);
    for (size_t i = 0; i < query->runs_count; ++i) {
      const ds_plugin_run& r = query->runs[i];
      made->runs.push_back({r.begin, r.end, r.missed, r.group, r.param, r.element});
    }
    std::vector<ds::TensorView> in = views_of(query->in, query->in_count),
                                results = views_of(query->out, query->out_count);
    // Matrix products must be selected before the first kernel runs.
    products();
    std::string refusal;
    made->kernel = ds::cuda::make_kernel(
        {query->op, in, results, made->attrs, device->device->shared_bytes()}, &refusal);
    if (!made->kernel) ds::cuda::refuse("{}", refusal);
    made->scratch_bytes = ds::round_up(made->kernel->scratch_bytes(), int64_t{256});
    *scratch_bytes = made->scratch_bytes + ds::cuda::kProductScratch;
    *out = made.release();
  });
}

int32_t kernel_launch(ds_plugin_kernel* kernel, ds_plugin_queue* queue,
                      const ds_plugin_launch* launch) {
  return guarded([&] {
    std::vector<ds::TensorView> in = views_of(launch->in, launch->in_count),
                                results = views_of(launch->out, launch->out_count);
    ds::cuda::Arguments arguments;
    arguments.in = in;
    arguments.out = results;
    arguments.scalars = static_cast<const ds::StepScalars*>(launch->scalars);
    arguments.leaf = launch->leaf;
    arguments.run = {launch->missed, launch->param, launch->element};
    if (launch->group) arguments.group = *static_cast<const ds::GroupScalars*>(launch->group);
    arguments.runs = kernel->runs;
    arguments.scratch = launch->scratch;
    // The scratch memory of the launch is the kernel's own, followed by the scratch memory of
    // matrix products.
    queue->stream.product_scratch =
        static_cast<std::byte*>(launch->scratch) + kernel->scratch_bytes;
    kernel->kernel->run(queue->stream, arguments);
    queue->stream.settle();
  });
}

int32_t link_library(ds_plugin_device*, char out[128]) {
  return guarded([&] { put(*reinterpret_cast<char(*)[128]>(out), ds::cuda::nccl_name()); });
}

int32_t link_id(ds_plugin_device* device, uint8_t out[128]) {
  return guarded([&] {
    const ds::cuda::NcclId id = ds::cuda::make_nccl_id(*device->device);
    std::copy(id.begin(), id.end(), out);
  });
}

int32_t link_open(ds_plugin_device* device, const uint8_t id[128], int32_t rank, int32_t size,
                  ds_plugin_device_link** out) {
  *out = nullptr;
  return guarded([&] {
    ds::cuda::NcclId own{};
    std::copy_n(id, own.size(), own.begin());
    *out = new ds_plugin_device_link{{device->device, own, rank, size}};
  });
}

int32_t link_poll(ds_plugin_device_link* link, int32_t* out) {
  *out = 0;
  return guarded([&] { *out = link->link.idle() ? 1 : 0; });
}

int32_t link_gather(ds_plugin_device_link* link, ds_plugin_queue* queue, const void* in, void* out,
                    int64_t bytes) {
  return guarded([&] { link->link.gather(queue->stream, in, out, bytes); });
}

int32_t link_swap(ds_plugin_device_link* link, ds_plugin_queue* queue, const ds_plugin_part* sends,
                  const ds_plugin_part* receives) {
  return guarded([&] { link->link.swap(queue->stream, sends, receives); });
}

void link_abort(ds_plugin_device_link* link) {
  guarded([&] { link->link.abort(); });
}
int32_t capture_begin(ds_plugin_queue* queue) {
  return guarded([&] { queue->stream.begin_capture(); });
}

int32_t capture_end(ds_plugin_queue* queue, ds_plugin_graph** out) {
  *out = nullptr;
  return guarded([&] { *out = new ds_plugin_graph{ds::cuda::Graph(queue->stream)}; });
}

int32_t graph_launch(ds_plugin_graph* graph, ds_plugin_queue* queue) {
  return guarded([&] { graph->graph.launch(queue->stream); });
}

int32_t mark(ds_plugin_queue* queue, uint32_t number) {
  return guarded([&] {
    queue->stream.mark(number);
    queue->stream.settle();
  });
}

uint32_t* marked(ds_plugin_queue* queue) { return queue->stream.marked(); }

}  // namespace

const ds_plugin_device_table* ds_plugin_devices(void) {
  static const ds_plugin_device_table table = {sizeof(ds_plugin_device_table),
                                               "cuda",
                                               DS_PLUGIN_BUILD,
                                               message,
                                               count,
                                               open,
                                               destroy<ds_plugin_device>,
                                               info,
                                               numerics,
                                               arena_create,
                                               arena_grow,
                                               destroy<ds_plugin_arena>,
                                               pin,
                                               unpin,
                                               owns,
                                               queue_create,
                                               destroy<ds_plugin_queue>,
                                               copy,
                                               fill,
                                               sum,
                                               event_create,
                                               destroy<ds_plugin_event>,
                                               record,
                                               wait,
                                               done,
                                               elapsed,
                                               finish,
                                               kernel_create,
                                               kernel_launch,
                                               destroy<ds_plugin_kernel>,
                                               link_library,
                                               link_id,
                                               link_open,
                                               link_poll,
                                               link_gather,
                                               link_swap,
                                               link_abort,
                                               destroy<ds_plugin_device_link>,
                                               capture_begin,
                                               capture_end,
                                               graph_launch,
                                               destroy<ds_plugin_graph>,
                                               mark,
                                               marked,
                                               ds::cuda::ranges,
                                               ds::cuda::range_push,
                                               ds::cuda::range_pop};
  return &table;
}
