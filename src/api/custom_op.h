#pragma once
#include <string_view>

#include "ds.h"
#include "kernels/custom.h"

namespace ds {

// An operation whose kernels are callbacks of the application. The constructor checks the
// description. user_data belongs to the caller until keep_user_data() is called, so a rejected
// operation does not destroy it.
class CallbackOp final : public CustomKernels {
 public:
  CallbackOp(std::string_view called, const ds_custom_op& op);
  ~CallbackOp() override;
  // Takes ownership of user_data: from now on, the destructor calls the caller's destroy function.
  void keep_user_data() { destroy_ = wanted_destroy_; }

  void forward(Views inputs, Views outputs) const override;
  void backward(Views inputs, Views outputs, Views output_grads, Views input_grads) const override;

 private:
  // Throws DS_ERROR_USER, which names the callback, unless its status is DS_OK.
  void check(ds_status status, const char* callback) const;

  ds_custom_forward_fn* forward_;
  ds_custom_backward_fn* backward_;
  void* user_data_;
  // `wanted_destroy_` is the caller's destroy function; `destroy_` is null until keep_user_data()
  // is called, then the same function.
  ds_custom_destroy_fn *wanted_destroy_, *destroy_ = nullptr;
};

}  // namespace ds
