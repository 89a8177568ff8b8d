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

TensorView part_of_update(TensorView view, int64_t begin, int64_t end, int64_t total) {
  // numel / total is the number of values per element, which is 1 or a fraction if the view has a
  // fixed number per granule. begin and end are multiples of the granule, so the divisions are
  // exact.
  const int64_t numel = view.numel();
  view.data = view.as<std::byte>() + begin * numel / total * size_of(view.dtype);
  view.dims[0] = (end - begin) * numel / total;
  return view;
}

}  // namespace ds
