#pragma once
#include <cstddef>
#include <cstring>

#include "core/base/half.h"
#include "kernels/kernel.h"

namespace ds {

// Runs an optimizer's update in a skipped step. It leaves master and states unchanged but still
// writes param, the rounded master, because a transfer of param to another tier copies all of this
// output.
inline void skip_update(const KernelContext& c) {
  const TensorView &master = c.out.front(), &param = c.out.back();
  if (param.data == master.data) return;
  if (param.dtype == master.dtype) {
    std::memcpy(param.data, master.data, static_cast<size_t>(master.bytes()));
  } else {
    narrow(param.dtype, master.as<float>(), master.numel(), param.as<std::byte>());
  }
}

}  // namespace ds
