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

// Returns dimensions as text for messages, for example "[2,3]".
std::string dims_text(std::span<const int64_t> dims);

// Returns the strides, in elements, of a row-major layout without gaps.
std::vector<int64_t> compact_strides(std::span<const int64_t> dims);
// Returns whether the elements are in row-major order without gaps.
bool is_compact(const ds_tensor& tensor);

// Returns whether two elements have one place in memory.
bool shares_places(const ds_tensor& tensor);

// Copies elements between tensors of the same type and shape but any strides. Calls `run` for each
// range of elements that is contiguous in both tensors.
void copy_runs(const ds_tensor& to, const ds_tensor& from,
               const std::function<void(void* to, const void* from, size_t bytes)>& run);

// A tensor argument in the form that the engine needs: row-major without gaps (compact). A host
// tensor that is not compact is copied, after the work that is now in the stream; for a device
// tensor that is not compact, the constructor throws. `argument` names the tensor in messages, for
// example "inputs[0]".
class CompactTensor {
 public:
  CompactTensor(const ds_tensor& given, const StreamRef& stream, const std::string& argument);
  // Returns the address of the compact elements.
  const void* data() const { return copy_ ? copy_->data : given_.data; }
  // Returns whether data() is a copy. The copy is freed with this object, so no stream may read it
  // later.
  bool is_copy() const { return copy_ != nullptr; }

 private:
  const ds_tensor& given_;
  std::unique_ptr<ds_tensor> copy_;
};

}  // namespace ds
