#pragma once
#include <string_view>

#include "ds.h"
#include "kernels/custom.h"

namespace ds {

// The operation that a program describes, checked. Until it is kept by keep_user_data, user_data is
// the caller's.
class CallbackOp final : public CustomKernels {
 public:
  CallbackOp(std::string_view called, const ds_custom_op& op);
  ~CallbackOp() override;
  void keep_user_data() { destroy_ = wanted_destroy_; }

  void forward(Views inputs, Views outputs) const override;
  void backward(Views inputs, Views outputs, Views output_grads, Views input_grads) const override;

 private:
  void check(ds_status status, const char* callback) const;

  ds_custom_forward_fn* forward_;
  ds_custom_backward_fn* backward_;
  void* user_data_;
  ds_custom_destroy_fn *wanted_destroy_, *destroy_ = nullptr;
};

}  // namespace ds
