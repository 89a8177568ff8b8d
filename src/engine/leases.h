#pragma once
#include <cstdint>
#include <memory>

#include "compile/plan.h"
#include "core/base/dtype.h"
#include "core/base/ids.h"
#include "core/device/device.h"
#include "core/device/stream.h"
#include "core/device/view.h"
#include "core/program/program.h"
#include "engine/micro_steps.h"
#include "engine/runtime.h"

namespace ds {

// A gradient of this rank in this micro-step: in the compute type, or in host memory in f32. With a
// stream, it is read in the stream's order.
struct HostGradient {
  const void* data = nullptr;
  DType dtype = DS_DTYPE_NONE;
  int64_t numel = 0;
  bool on_device = false;
  StreamRef stream = nullptr;
};

// The state of a delegate host: the parameters that it leases, its gradients of the current
// micro-step, and the places of both in memory.
class Leases {
 public:
  // A place in device memory: a buffer and an offset in bytes.
  struct Place {
    // The buffer, or null if the place is not set.
    const Buffer* buffer = nullptr;
    int64_t begin = 0;
  };
  struct Param {
    int32_t leases = 0;
    // Valid while the parameter is leased.
    Place place;
    // The copy that the host sees if host code cannot use `place`; created at the first view of the
    // lease.
    std::shared_ptr<Arena> copy;
    // Whether the parameter has had a gradient in this step.
    bool has_gradient = false;
    // The gradient of the parameter in this micro-step.
    struct {
      bool given = false;
      // Set at the first view of the gradient.
      Place place;
      // The memory that the host sees if host code cannot use `place`.
      std::shared_ptr<Arena> room;
      // The stream that may write to `place`.
      StreamRef stream;
    } grad;
  };
  struct Bucket {
    // Number of parameters of a partitioned bucket that are leased at their own_place().
    int32_t leases = 0;
    // Number of parameters without a gradient in this micro-step.
    int32_t missing = 0;
    // Whether the recorded program has reduced this bucket in this micro-step.
    bool reduced = false;
  };

  // The arguments are borrowed. The plan must be compiled before begin() is called.
  Leases(Runtime& runtime, const Plan& plan, const MicroSteps& micros)
      : runtime_(runtime), plan_(plan), micros_(micros) {}

  // Begins with no leases.
  void begin();
  // Begins a micro-step, in which no parameter has a gradient yet.
  void begin_micro_step();

  // Return the places of a parameter and of its gradient in a step that runs call by call.
  Place own_place(ParamId param) const;
  Place grad_place(ParamId param) const;
  void clear_grad(ParamId param);
  // If the host has viewed the place of a gradient but passed no gradient, the engine takes the
  // place back. Waits until the host's stream has stopped writing there.
  void wait_for_writers() const;
  // Returns, for each parameter, whether it has had no gradient in this step.
  IdVector<ParamId, char> without_gradient() const;
  // Copies `numel` elements of a gradient to `to`.
  void put(const HostGradient& grad, const Place& to, int64_t numel);
  // Returns a view with the parameter's type and shape but no address.
  TensorView shaped(ParamId param) const;
  // Returns the bytes of the places of leases and gradients. They are backed by pages only while
  // the host uses a bucket, and the host decides how many buckets it uses at once.
  int64_t unbacked_bytes() const;

  IdVector<ParamId, Param> params;
  IdVector<BucketId, Bucket> buckets;
  // The next bucket to reduce in this micro-step. Buckets are reduced from the last one down, so
  // buckets with a higher number are done.
  BucketId next_reduce;

 private:
  Runtime& runtime_;
  const Plan& plan_;
  const MicroSteps& micros_;
};

}  // namespace ds
