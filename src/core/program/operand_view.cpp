#include "core/program/operand_view.h"

#include <cstddef>

namespace ds {

TensorView operand_view(const Operand& operand, int64_t n) {
  TensorView view;
  view.dtype = operand.type.dtype;
  view.rank = static_cast<int>(operand.type.shape.rank());
  for (size_t d = 0; d < operand.type.shape.rank(); ++d) {
    const Dim& dim = operand.type.shape[d];
    view.dims[d] = dim.symbolic ? n : dim.extent;
  }
  return view;
}

}  // namespace ds
