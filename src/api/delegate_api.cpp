// This file implements the calls of delegate mode, in which a host framework runs forward and
// backward itself: registering parameters, leasing them, and handing over gradients.
//
// Most of these calls are collective: the engine records their order during one step and runs it as
// a compiled Program from the next step on. The functions here only check arguments and translate
// handles. Host tensors are made compact first. If a stream is passed, the engine waits for the
// work in it, and the stream keeps memory alive until that work is done.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "api/boundary.h"
#include "api/handles.h"
#include "api/strides.h"
#include "core/base/error.h"
#include "core/base/ids.h"
#include "core/base/shape.h"
#include "core/device/stream.h"
#include "core/device/view.h"
#include "core/graph/graph.h"
#include "engine/delegate.h"

namespace ds {
namespace {

std::span<const int32_t> numbers(const int32_t* params, size_t count) {
  need_array(params, count, "params");
  return {params, count};
}

// Creates a handle for a view of the engine's memory. The handle shares the owner of the memory,
// which may therefore outlive the lease.
std::unique_ptr<ds_tensor> tensor_of(DelegateEngine::Seen seen, std::shared_ptr<Device> device) {
  const TensorView& view = seen.view;
  auto tensor = std::make_unique<ds_tensor>();
  tensor->dtype = view.dtype;
  tensor->dims.assign(view.dims, view.dims + view.rank);
  tensor->strides = compact_strides(tensor->dims);
  tensor->numel = view.numel();
  tensor->data = view.data;
  tensor->owner = std::move(seen.owner);
  if (seen.on_device) tensor->device = std::move(device);
  return tensor;
}

// Throws if the shape of a gradient differs from its parameter's by more than dimensions of 1. A
// gradient with fewer than two dimensions is accepted as a list of elements.
void need_shape(const ds_tensor& grad, const DelegateEngine& engine, ParamId param) {
  engine.store().check_param(param);
  const std::vector<int64_t>& shape = engine.store().param_shapes()[param];
  auto without_ones = [](std::vector<int64_t> dims) {
    std::erase(dims, 1);
    return dims;
  };
  require(
      grad.dims.size() < 2 || grad.dims == shape || without_ones(grad.dims) == without_ones(shape),
      "gradient of '{}' must have shape {}, got {}",
      TensorName(engine.store().param_names()[param]), dims_text(shape), dims_text(grad.dims));
}

// Hands over a gradient. The stream keeps its memory alive until the work that uses it is done.
void hand_over(const ds_engine& handle, DelegateEngine& engine, ParamId param,
               const ds_tensor& grad, const StreamRef& order) {
  need_device(grad, &handle, "grad");
  need_shape(grad, engine, param);
  CompactTensor compact(grad, order, "grad");
  engine.grad_ready(param,
                    // A copy is freed at the end of this call, so the engine must read it before
                    // the call returns: the stream is not passed on.
                    {compact.data(), grad.dtype, grad.numel, grad.device != nullptr,
                     compact.is_copy() ? nullptr : order});
  if (order) order->keep(grad.owner);
}

}  // namespace
}  // namespace ds

ds_status ds_engine_param_add(ds_engine* engine, const char* name, ds_dtype dtype,
                              const int64_t* dims, size_t dims_count, int32_t* out) {
  return ds::boundary([&] {
    ds::DelegateEngine& e = ds::delegate(engine, "ds_engine_param_add");
    ds::need_array(dims, dims_count, "dims");
    ds::need(out, "out");
    ds::require(dims_count <= 4, "dims_count must be at most 4, got {}", dims_count);
    int64_t numel = 1;
    for (size_t i = 0; i < dims_count; ++i) {
      // The product must fit into int64_t, and so must the product of the first dimensions, even if
      // a later one is 0.
      ds::require(dims[i] >= 0 && dims[i] <= INT64_MAX / std::max<int64_t>(1, numel),
                  "dims[{}] must be 0 or more and make at most {} elements, got {}", i, INT64_MAX,
                  dims[i]);
      numel *= dims[i];
    }
    const std::string text(ds::need_text(name, "name"));
    *out = e.add_param(text, {dims, dims + dims_count}, dtype).number();
  });
}

ds_status ds_engine_start(ds_engine* engine) {
  return ds::boundary([&] {
    ds::DelegateEngine& e = ds::delegate(engine, "ds_engine_start");
    ds::Inside inside(*engine);
    e.start();
  });
}

ds_status ds_engine_evaluate(ds_engine* engine, int32_t on) {
  return ds::boundary([&] {
    ds::DelegateEngine& e = ds::delegate(engine, "ds_engine_evaluate");
    ds::require(on == 0 || on == 1, "on must be 0 or 1, got {}", on);
    e.evaluate(on == 1);
  });
}

ds_status ds_engine_drop_step(ds_engine* engine) {
  return ds::boundary([&] { ds::delegate(engine, "ds_engine_drop_step").drop_step(); });
}

// The engine checks the parameter ids.
ds_status ds_gather_params(ds_engine* engine, const int32_t* params, size_t params_count,
                           ds_stream* stream) {
  return ds::boundary([&] {
    ds::DelegateEngine& e = ds::delegate(engine, "ds_gather_params");
    // The values are complete when this call returns, so the stream is only checked, not used.
    ds::stream_of(stream, engine);
    e.gather(ds::ids_of<ds::ParamId>(ds::numbers(params, params_count)));
  });
}

ds_status ds_release_params(ds_engine* engine, const int32_t* params, size_t params_count,
                            ds_stream* stream) {
  return ds::boundary([&] {
    ds::DelegateEngine& e = ds::delegate(engine, "ds_release_params");
    ds::StreamRef order = ds::stream_of(stream, engine);
    e.release(ds::ids_of<ds::ParamId>(ds::numbers(params, params_count)), order);
  });
}

ds_status ds_engine_param_view(ds_engine* engine, int32_t param, ds_stream* stream,
                               ds_tensor** out) {
  return ds::boundary([&] {
    ds::need(out, "out") = nullptr;
    ds::DelegateEngine& e = ds::delegate(engine, "ds_engine_param_view");
    ds::StreamRef order = ds::stream_of(stream, engine);
    *out = ds::tensor_of(e.view(ds::ParamId(param), order), e.runtime().device()).release();
  });
}

ds_status ds_engine_grad_view(ds_engine* engine, int32_t param, ds_stream* stream,
                              ds_tensor** out) {
  return ds::boundary([&] {
    ds::need(out, "out") = nullptr;
    ds::DelegateEngine& e = ds::delegate(engine, "ds_engine_grad_view");
    ds::StreamRef order = ds::stream_of(stream, engine);
    *out = ds::tensor_of(e.grad_view(ds::ParamId(param), order), e.runtime().device()).release();
  });
}

ds_status ds_grad_ready(ds_engine* engine, int32_t param, const ds_tensor* grad,
                        ds_stream* stream) {
  return ds::boundary([&] {
    const ds_tensor& tensor = ds::need(grad, "grad");
    ds::DelegateEngine& e = ds::delegate(engine, "ds_grad_ready");
    ds::hand_over(*engine, e, ds::ParamId(param), tensor, ds::stream_of(stream, engine));
  });
}

ds_status ds_grads_ready(ds_engine* engine, const int32_t* params, size_t params_count,
                         const ds_tensor* const* grads, ds_stream* stream) {
  return ds::boundary([&] {
    const std::span<const int32_t> all = ds::numbers(params, params_count);
    ds::need_array(grads, params_count, "grads");
    ds::DelegateEngine& e = ds::delegate(engine, "ds_grads_ready");
    ds::StreamRef order = ds::stream_of(stream, engine);
    for (size_t i = 0; i < all.size(); ++i) {
      ds::require(grads[i] != nullptr, "grads[{}] must not be NULL", i);
      ds::hand_over(*engine, e, ds::ParamId(all[i]), *grads[i], order);
    }
  });
}
