// The places of a delegate host's parameters and gradients in a step that runs call by call: each
// partitioned bucket has a buffer for leases, parameters of every other bucket are leased where
// they are, and each trained bucket has a buffer for gradients. In the first micro-step gradients
// are put into the bucket's accumulator instead, if it can take them. A parameter has the same
// offset in all of these buffers. In a recorded step the program determines the places
// (delegate_record.cpp).
#include "engine/leases.h"

#include <cstddef>

#include "core/program/granules.h"
#include "engine/arena.h"
#include "zero/zero_plan.h"

namespace ds {

void Leases::begin() {
  params.resize(plan_.host.params.size());
  buckets.resize(plan_.host.lease.size());
  begin_micro_step();
}

void Leases::begin_micro_step() {
  for (Param& param : params) param.grad = {};
  for (BucketId b : buckets.ids()) {
    buckets[b].missing = static_cast<int32_t>(plan_.zero.trained_params(b).size());
    buckets[b].reduced = false;
  }
  next_reduce = plan_.host.lease.last();
}

Leases::Place Leases::own_place(ParamId param) const {
  const Layout& layout = plan_.zero.layout;
  return {&runtime_.buffer(plan_.host.lease[layout.bucket_of[param]]),
          layout.place(param).begin * size_of(plan_.host.types[param].dtype)};
}

Leases::Place Leases::grad_place(ParamId param) const {
  const auto& grads = micros_.done() == 0 ? plan_.host.first_grads : plan_.host.grads;
  return {&runtime_.buffer(grads[plan_.zero.layout.bucket_of[param]]), own_place(param).begin};
}

void Leases::clear_grad(ParamId param) {
  const Place place = grad_place(param);
  runtime_.memory().fill(*place.buffer, place.begin, 0, shaped(param).bytes());
}

void Leases::wait_for_writers() const {
  for (const Param& param : params) {
    if (param.grad.stream && !param.grad.given) param.grad.stream->synchronize();
  }
}

IdVector<ParamId, char> Leases::without_gradient() const {
  IdVector<ParamId, char> without;
  for (const Param& param : params) without.push_back(!param.has_gradient);
  return without;
}

void Leases::put(const HostGradient& grad, const Place& to, int64_t numel) {
  const DType dtype = to.buffer->dtype;
  const int64_t unit = size_of(dtype);
  EngineMemory& memory = runtime_.memory();
  std::byte* place = memory.address(*to.buffer) + to.begin;
  if (grad.dtype != dtype) {
    // The host converts the elements at once, so the stream must have finished writing them.
    if (grad.stream) grad.stream->synchronize();
    return memory.write_floats(*to.buffer, to.begin / unit, numel,
                               static_cast<const float*>(grad.data));
  }
  // If the host has written to the place from grad_view(), the gradient is there already.
  if (grad.data != place) {
    if (grad.stream) {
      grad.stream->queue().copy(place, grad.data, numel * unit);
    } else {
      memory.write(*to.buffer, to.begin, grad.data, numel * unit);
    }
  }
  runtime_.order_after(grad.stream);
}

TensorView Leases::shaped(ParamId param) const {
  const TensorType& type = plan_.host.types[param];
  TensorView view;
  view.dtype = type.dtype;
  view.rank = static_cast<int>(type.shape.rank());
  for (size_t d = 0; d < type.shape.rank(); ++d) view.dims[d] = type.shape[d].extent;
  return view;
}

int64_t Leases::unbacked_bytes() const {
  int64_t bytes = 0;
  auto add = [&](BufferId id) { bytes += plan_.buffers()[id].bytes(); };
  for (BucketId b : plan_.host.lease.ids()) {
    if (plan_.zero.buckets[b].partitioned) add(plan_.host.lease[b]);
    if (plan_.host.grads[b].exists()) add(plan_.host.grads[b]);
  }
  return bytes;
}

}  // namespace ds
