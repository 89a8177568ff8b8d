"""Tensors shared with NumPy without a copy, both ways."""
import sys

import libds.lowlevel as ds

try:
    import numpy as np
except ImportError:
    print("skipped: NumPy is not installed for", sys.executable, file=sys.stderr)
    sys.exit(77)

# From libds to NumPy: the array keeps the memory alive.
tensor = ds.tensor_create(ds.DTYPE_F32, [2, 3])
view = np.from_dlpack(tensor)
tensor.memory().cast("f")[4] = 7.5
assert view.shape == (2, 3) and view.dtype == np.float32 and view[1, 1] == 7.5
del tensor
assert view.sum() == 7.5

# From NumPy to libds: the tensor keeps the array alive.
source = np.arange(12, dtype=np.int32).reshape(3, 4)
tensor = ds.tensor_from(source, 0, 0)
assert ds.tensor_info(tensor) == [ds.DTYPE_I32, [3, 4]]
source[2, 3] = 99
del source
assert tensor.memory().cast("i")[11] == 99
assert np.from_dlpack(ds.tensor_from(np.float64([1, 2]).__dlpack__(), 0, 0)).tolist() == [1.0, 2.0]

# An array that is not contiguous is accepted with its strides.
columns = np.arange(12, dtype=np.float32).reshape(3, 4)[:, ::2]
strided = ds.tensor_from(columns, 0, 0)
columns[0, 0] = 7
assert np.from_dlpack(strided).tolist() == columns.tolist() == [[7, 2], [4, 6], [8, 10]]
made = ds.tensor_create(ds.DTYPE_F32, [3, 2])
ds.tensor_copy(made, strided)
assert np.from_dlpack(made).tolist() == columns.tolist()
