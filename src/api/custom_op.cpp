// This file implements operations whose kernels are callbacks of the application.
//
// The graph, its copies in engines and plans, and their instructions share a CallbackOp; user_data
// is destroyed once, with the last of them. Callbacks get tensors as handles that are valid only
// during a call: they are views of memory in the engine's arenas and own nothing.
#include "api/custom_op.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "api/boundary.h"
#include "api/handles.h"
#include "api/strides.h"
#include "core/base/dtype.h"
#include "core/base/name.h"
#include "core/base/shape.h"
#include "core/device/view.h"
#include "core/graph/custom_op.h"

namespace ds {
namespace {

// Handles for the tensors of one callback, valid only during that call.
class LentTensors {
 public:
  explicit LentTensors(CustomKernels::Views views)
      : tensors_(views.size()), handles_(views.size()) {
    for (size_t i = 0; i < views.size(); ++i) {
      const TensorView& view = views[i];
      // A gradient is NULL if the loss does not depend on its tensor or if it is not needed.
      if (!view.data) continue;
      ds_tensor& tensor = tensors_[i];
      tensor.dtype = view.dtype;
      tensor.dims.assign(view.dims, view.dims + view.rank);
      tensor.strides = compact_strides(tensor.dims);
      tensor.numel = view.numel();
      tensor.data = view.data;
      handles_[i] = &tensor;
    }
  }
  ds_tensor* const* get() const { return handles_.data(); }

 private:
  std::vector<ds_tensor> tensors_;
  std::vector<ds_tensor*> handles_;
};

// Returns the types of the results in the form of CustomOp::outputs, for example "T[n,16] f32[]".
// op.dims has the dimensions of all results, one result after the other.
std::string types_text(const ds_custom_op& op) {
  std::string out;
  const int64_t* dims = op.dims;
  for (size_t k = 0; k < op.outputs_count; ++k) {
    int dtype = static_cast<int>(op.dtypes[k]);
    require(dtype >= DS_DTYPE_NONE && dtype <= DS_DTYPE_U8,
            "op.dtypes[{}] must be one of ds_dtype, got {}", k, dtype);
    require(op.dims_counts[k] <= 4, "op.dims_counts[{}] must be at most 4, got {}", k,
            op.dims_counts[k]);
    require(op.dims_counts[k] == 0 || dims, "op.dims must not be NULL with dims_counts[{}] {}", k,
            op.dims_counts[k]);
    std::vector<Dim> shape;
    for (size_t d = 0; d < op.dims_counts[k]; ++d, ++dims) {
      require(*dims == -1 || *dims >= 1, "op.dims[{}] must be 1 or more, or -1 for n, got {}",
              dims - op.dims, *dims);
      shape.push_back(*dims == -1 ? Dim::n() : Dim(*dims));
    }
    out += (k == 0 ? "" : " ") +
           std::string(dtype == DS_DTYPE_NONE ? "T" : dtype_name(op.dtypes[k])) +
           Shape(std::move(shape)).text();
  }
  return out;
}

}  // namespace

// The constructor checks the whole description, before the graph is changed.
CallbackOp::CallbackOp(std::string_view called, const ds_custom_op& op)
    : forward_(op.forward),
      backward_(op.backward),
      user_data_(op.user_data),
      wanted_destroy_(op.destroy) {
  name = called;
  require_name("operation", name);
  require(forward_ != nullptr, "op.forward must not be NULL");
  require(op.outputs_count >= 1 && op.outputs_count <= kMostCustomOperands,
          "op.outputs_count must be 1 to {}, got {}", kMostCustomOperands, op.outputs_count);
  need(op.dtypes, "op.dtypes");
  need(op.dims_counts, "op.dims_counts");
  outputs = types_text(op);
  has_backward = backward_ != nullptr;
}

// Runs when the last graph, engine or plan that uses the operation is destroyed.
CallbackOp::~CallbackOp() {
  if (destroy_) destroy_(user_data_);
}

// The error ends the step, because the engine cannot know which outputs were written.
void CallbackOp::check(ds_status status, const char* callback) const {
  if (status != DS_OK)
    raise(DS_ERROR_USER, "{} of custom operation '{}' returned {}", callback, name,
          static_cast<int>(status));
}

void CallbackOp::forward(Views in, Views out) const {
  LentTensors inputs(in), outputs_(out);
  check(forward_(inputs.get(), outputs_.get(), user_data_), "forward");
}

void CallbackOp::backward(Views in, Views out, Views out_grads, Views in_grads) const {
  LentTensors inputs(in), results(out), result_grads(out_grads), input_grads(in_grads);
  check(backward_(inputs.get(), results.get(), result_grads.get(), input_grads.get(), user_data_),
        "backward");
}

}  // namespace ds
