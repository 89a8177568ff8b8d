#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "api/handles.h"
#include "core/device/stream.h"

namespace ds {

// Dimensions as messages show them: "[2,3]".
std::string dims_text(std::span<const int64_t> dims);

// Row-major, without gaps.
std::vector<int64_t> compact_strides(std::span<const int64_t> dims);
bool is_compact(const ds_tensor& tensor);

// Copies elements between tensors of one type and shape, whatever their strides, as calls of `run`
// for each run of elements that lie one behind the other in both.
void copy_runs(const ds_tensor& to, const ds_tensor& from,
               const std::function<void(void* to, const void* from, size_t bytes)>& run);

// A tensor of a call as the engine takes it: compact. One on the host that is not is copied, once
// the stream has done what it has now; one on a device that is not is refused. argument: for
// messages, "inputs[0]".
class CompactTensor {
 public:
  CompactTensor(const ds_tensor& given, const StreamRef& stream, const std::string& argument);
  const void* data() const { return copy_ ? copy_->data : given_.data; }
  bool is_copy() const {
    return copy_ != nullptr;
  }  // it ends with this, and no stream may read it later

 private:
  const ds_tensor& given_;
  std::unique_ptr<ds_tensor> copy_;
};

}  // namespace ds
