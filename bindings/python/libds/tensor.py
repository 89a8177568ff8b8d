"""Tensors: memory that libds, NumPy, torch and others share without copies."""
from __future__ import annotations

import math
import struct
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from . import errors, lowlevel
from ._arguments import checked, ranged, shown

__all__ = ["Tensor", "tensor", "zeros", "DTYPES"]

if TYPE_CHECKING:

    class _Elements:
        """The members of the low-level type, for type checkers."""

        shape: tuple[int, ...]
        strides: tuple[int, ...]
        data_ptr: int
        dtype_code: int
        nbytes: int
        exports: int
        closed: bool
        readonly: bool

        def __buffer__(self, flags: int, /) -> memoryview: ...

        def close(self) -> None: ...

else:
    _Elements = lowlevel.Elements

#: Names of element types. The buffer protocol and NumPy have no "bf16" and see it as uint16.
DTYPES = ("f32", "bf16", "f16", "f64", "i32", "i64", "u8")
_MAX_DIMS = 8
_CODES = {name: code for code, name in enumerate(DTYPES, 1)}
_FORMATS = {"f32": "f", "bf16": "H", "f16": "e", "f64": "d", "i32": "i", "i64": "q", "u8": "B"}
_ALIASES = {"float32": "f32", "bfloat16": "bf16", "float16": "f16", "float64": "f64", "int32": "i32", "int64": "i64",
            "uint8": "u8"}


def dtype_code(dtype: Any) -> int:
    """Returns the constant of ds.h for an element type: a name in `DTYPES`, or a type of NumPy or torch."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    name = str(name).rsplit(".", maxsplit=1)[-1]
    code = _CODES.get(_ALIASES.get(name, name))
    if code is None:
        raise errors.refuse(f"dtype must be one of {', '.join(DTYPES)}, got {shown(dtype)}")
    return code


@checked
class Tensor(_Elements):
    """A tensor on the host over the memory of `source`, which it keeps alive: nothing is copied, whatever the strides.

    `source` is anything that shares its memory: a NumPy array or another object with the buffer protocol, a torch tensor or
    another object with `__dlpack__`, a DLPack capsule. A tensor shares its own memory likewise: `numpy.asarray(tensor)`,
    `memoryview(tensor)`, `torch.from_dlpack(tensor)`. `dtype="bf16"` reads 16-bit integers as the bit patterns of bfloat16.

    `libds.zeros` and `libds.tensor` create tensors with their own memory. A tensor is a context manager; arrays created from
    it keep the memory alive after it is closed.
    """

    _raw: Any = None

    def __init__(self, source: Any, dtype: Any = None) -> None:
        self._bind(raw_of(source, dtype, name="source"))

    @classmethod
    def _of(cls, raw: Any) -> Tensor:
        self = cls.__new__(cls)
        self._bind(raw)
        return self

    def _bind(self, raw: Any) -> None:
        lowlevel.bind_elements(self, raw)
        self._raw = raw

    def _need(self) -> Any:
        raw = self._raw
        if raw is None:
            raise errors.closed("Tensor") if "_raw" in self.__dict__ else errors.unmade("Tensor")
        return raw

    @property
    def dtype(self) -> str:
        """Element type, one of `libds.DTYPES`."""
        return DTYPES[self.dtype_code - 1]

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.nbytes // struct.calcsize(_FORMATS[self.dtype])

    def numpy(self) -> Any:
        """Returns a NumPy array over the memory; for "bf16" an array of uint16, because NumPy has no such type."""
        import numpy  # pylint: disable=import-outside-toplevel

        self._need()
        return numpy.asarray(self)

    def __array__(self, *arguments: Any, **options: Any) -> Any:
        # NumPy calls this if the buffer protocol has failed.
        self._need()
        raise BufferError("the tensor cannot be shown as a buffer")

    def tolist(self) -> Any:
        """Returns the elements as nested lists of Python's numbers."""
        view = memoryview(self)
        if self.dtype in ("bf16", "f16"):
            flat = struct.unpack(f"{self.size}H", view.tobytes())
            if self.dtype == "bf16":
                flat = struct.unpack(f"{self.size}f", struct.pack(f"{self.size}I", *(bits << 16 for bits in flat)))
            else:
                flat = struct.unpack(f"{self.size}e", struct.pack(f"{self.size}H", *flat))
            return _nest(iter(flat), self.shape)
        return view.tolist()

    def copy_(self, source: Any) -> Tensor:
        """Copies the elements of `source`, which has the same element type and shape; returns this tensor."""
        lowlevel.tensor_copy(self._need(), raw_of(source, name="source"))
        return self

    def close(self) -> None:
        """Releases the memory as soon as no array shares it. May be called repeatedly."""
        self._raw = None
        super().close()

    def __enter__(self) -> Tensor:
        self._need()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without dimensions has no length")
        return self.shape[0]

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        """Returns a DLPack capsule over the memory, for `from_dlpack` of NumPy, torch and others."""
        if dl_device not in (None, (1, 0)):
            raise BufferError(f"the tensor is on the host, (1, 0), and cannot go to {dl_device}")
        if copy:
            raise BufferError("libds shares the memory and makes no copy")
        versioned = max_version is not None and max_version[0] >= 1
        if self.readonly and not versioned:
            raise BufferError("the tensor is over memory that is read-only, which DLPack before 1.0 cannot say")
        return lowlevel.tensor_to_dlpack(self._need(), int(versioned))

    def __dlpack_device__(self) -> tuple[int, int]:
        """Returns (1, 0), which is the host."""
        return (1, 0)

    def __repr__(self) -> str:
        if self._raw is None:
            return "Tensor(closed)"
        if self.size > 8:
            return f"Tensor(shape={self.shape}, dtype={self.dtype!r})"
        return f"Tensor({self.tolist()}, dtype={self.dtype!r})"


def raw_of(source: Any, dtype: Any = None, writable: bool = False, *, name: str) -> Any:
    """Returns the low-level tensor of the array in the argument `name`: that of a Tensor, or a new one over the memory of any
    other array."""
    if isinstance(source, Tensor):
        raw = source._need()
        if dtype is not None and dtype_code(dtype) != source.dtype_code:
            raise errors.refuse(f"dtype must be {source.dtype}, which the tensor has, got {dtype!r}")
        if writable and source.readonly:
            raise errors.refuse(f"{name}: the tensor is over memory that is read-only")
        return raw
    code = 0 if dtype is None else dtype_code(dtype)
    try:
        return lowlevel.tensor_from(source, writable, code)
    except Exception as error:
        raise errors.named(name, error) from error


def inputs_of(arrays: Iterable[Any]) -> list[Any]:
    """Returns the low-level tensors of the inputs of a step; None stays None."""
    return [None if array is None else raw_of(array, name=f"inputs[{i}]") for i, array in enumerate(arrays)]


def dims_of(shape: Any) -> list[int]:
    """Returns the argument `shape`, a sequence or one number, as dimensions."""
    return [ranged("shape", dim, 0, (1 << 63) - 1) for dim in (shape if isinstance(shape, Iterable) else [shape])]


@checked
def zeros(shape: Sequence[int] | int, dtype: Any = "f32") -> Tensor:
    """Returns a new tensor of zeros with its own memory."""
    dims = dims_of(shape)
    if len(dims) > _MAX_DIMS or math.prod(max(dim, 1) for dim in dims) > sys.maxsize // 8:
        raise errors.refuse(f"shape must have at most {_MAX_DIMS} dimensions and 2**60 elements, got {dims}")
    return Tensor._of(lowlevel.tensor_create(dtype_code(dtype), dims))


def tensor(values: Any, dtype: Any = None) -> Tensor:
    """Returns a new tensor with a copy of `values`: a number, or nested lists of numbers of equal lengths.

    Without a dtype it is "f32" if any value is a float or there are no values, and otherwise "i32".
    """
    shape, flat = _flatten(values, 0)
    if dtype is None:
        dtype = "f32" if any(isinstance(value, float) for value in flat) or not flat else "i32"
    made = zeros(shape, dtype)
    data = _packed(flat, made.dtype)
    if flat:
        made._raw.memory()[:] = data
    return made


def _packed(values: Sequence[Any], dtype: str) -> bytes:
    """Returns numbers as the bytes of an array; a number that does not fit the element type is refused."""
    try:
        bits = [_bfloat16(value) for value in values] if dtype == "bf16" else values
        return struct.pack(f"{len(bits)}{_FORMATS[dtype]}", *bits)
    except (struct.error, OverflowError):
        if len(values) == 1:
            raise errors.refuse(f"values must be numbers that {dtype} can hold, got {shown(values[0])}") from None
    return b"".join(_packed([value], dtype) for value in values)


def _bfloat16(value: float) -> int:
    """Returns the bit pattern of the bfloat16 nearest to a number, ties to even."""
    bits = struct.unpack("I", struct.pack("f", value))[0]
    if bits & 0x7FFFFFFF > 0x7F800000:
        return (bits >> 16) | 0x40
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def _flatten(values: Any, depth: int) -> tuple[list[int], list[Any]]:
    if not isinstance(values, (list, tuple)):
        if not isinstance(values, (int, float)):
            raise TypeError(f"values must be a number or nested lists of numbers, got {shown(values)}")
        return [], [values]
    if depth == _MAX_DIMS:
        raise errors.refuse(f"values must be lists nested at most {_MAX_DIMS} deep, got deeper ones")
    parts = [_flatten(value, depth + 1) for value in values]
    if any(shape != parts[0][0] for shape, _ in parts):
        raise errors.refuse(f"values must be lists of equal lengths, got shapes {parts[0][0]} and "
                            f"{next(shape for shape, _ in parts if shape != parts[0][0])}")
    return [len(parts)] + (parts[0][0] if parts else []), [value for _, flat in parts for value in flat]


def _nest(flat: Any, shape: Sequence[int]) -> Any:
    if not shape:
        return next(flat)
    return [_nest(flat, shape[1:]) for _ in range(shape[0])]
