#pragma once
#include <cstddef>
#include <cstring>

#include "core/base/half.h"
#include "kernels/kernel.h"

namespace ds {

// An optimizer's update in a step that is skipped: nothing moves, but param is written all the
// same, because where it leads to another tier all of it is taken from here. It is what it was: its
// master, rounded.
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
