"""Parameters that are cut to each rank's part as soon as their module is constructed, until an engine takes them over.

A cut parameter keeps its shape and reads as NaN, like one that an engine of ZeRO stage 3 has released. While a model is constructed, a
function of torch that gets such a parameter sees it whole, and what it writes becomes the value of all ranks, with rank 0's winning.
"""
from __future__ import annotations

import ctypes
import functools
import mmap
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

import libds

__all__ = ["Construction", "Slice", "cast", "nan", "slice_of"]

_KEY = "_libds_slice"
#: How many parameters a construction keeps whole after functions have used them, so that a write through `p.data` or a view is not lost.
_KEPT = 2
#: Tensors of at least so many bytes go back to the system when they are freed.
_LARGE = 1 << 18
#: Functions of torch that do not read or write values.
_WITHOUT_VALUES = frozenset({
    "shape", "size", "dim", "ndim", "ndimension", "numel", "nelement", "dtype", "device", "layout", "stride", "requires_grad",
    "requires_grad_", "is_floating_point", "is_complex", "is_leaf", "is_meta", "is_cpu", "is_cuda", "is_sparse", "is_quantized",
    "is_contiguous", "grad", "grad_fn", "element_size", "itemsize", "nbytes", "names", "_version", "_backward_hooks", "register_hook",
    "register_post_accumulate_grad_hook", "retain_grad", "__len__", "__hash__", "__repr__", "__format__", "__deepcopy__", "is_shared",
    "untyped_storage", "data_ptr"})


def nan(shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    """Returns what a parameter is while its values are away: one NaN, which has the shape of the parameter."""
    return torch.full((), float("nan"), dtype=dtype).expand(shape)


def _directly(call: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function's own use of torch invisible to a construction."""
    @functools.wraps(call)
    def direct(*arguments: Any) -> Any:
        with torch._C.DisableTorchFunction():
            return call(*arguments)

    return direct


class Slice:
    """This rank's part of a parameter, and the way to the whole one. Parameters are cut, gathered and stored by all ranks alike."""

    __slots__ = ("param", "comm", "part", "away", "users", "__weakref__")

    @_directly
    def __init__(self, param: torch.nn.Parameter, comm: libds.Comm, part: torch.Tensor) -> None:
        self.param, self.comm, self.part = param, comm, part
        self.away = nan(param.shape, part.dtype)
        #: How many callers need the whole parameter now.
        self.users = 0
        setattr(param, _KEY, self)
        param.__deepcopy__ = functools.partial(_copy, self)  # type: ignore[method-assign]
        param.data = self.away

    @classmethod
    @_directly
    def cut(cls, param: torch.nn.Parameter, comm: libds.Comm) -> Slice:
        """Cuts a parameter, whose values become those of rank 0. Collective."""
        return cls(param, comm, _part(_shared(param.detach(), comm, 0), comm))

    def __reduce__(self) -> Any:
        return type(None), ()  # a parameter that is read from a file is whole

    def whole(self) -> torch.Tensor:
        """Returns the whole parameter in memory of its own. Collective."""
        if self.comm.size == 1:
            return self.part.clone().view(self.away.shape)
        out = _zeros(self.part.numel() * self.comm.size, self.part.dtype)
        self.comm.all_gather(self.part.view(torch.uint8), out.view(torch.uint8))
        return out[:self.away.numel()].view(self.away.shape)

    @_directly
    def gather(self) -> None:
        """Makes the parameter whole until as many calls of `release`. Collective."""
        if self.users == 0:
            self.param.data = self.whole()
        self.users += 1

    @_directly
    def release(self) -> None:
        """Takes the values away again, with all changes that were not stored."""
        self.users -= 1
        if self.users == 0:
            self.param.data = self.away

    def fill(self) -> None:
        """Makes the parameter memory that the caller fills, and then ends with `filled`."""
        self.param.data = torch.empty(self.away.shape, dtype=self.part.dtype)
        self.users += 1

    def filled(self) -> None:
        """Takes this rank's part of values that all ranks have alike."""
        self.part = _part(self.param.detach().reshape(-1), self.comm)
        self.release()

    @_directly
    def store(self, rank: int) -> None:
        """Makes the values that `rank` has those of all ranks, for a parameter that is whole. Collective."""
        if self.param.shape != self.away.shape:
            raise libds.errors.refuse(f"a parameter must keep shape {tuple(self.away.shape)}, got {tuple(self.param.shape)}")
        self.part = _part(_shared(self.param.detach(), self.comm, rank).to(self.part.dtype), self.comm)

    def cast(self, dtype: torch.dtype) -> None:
        """Changes the type of the values, after a module may have changed that of the parameter."""
        if self.users:
            raise libds.StateError(libds.Status.STATE, "a parameter of zero.Init is gathered: end GatheredParameters before initialize")
        self.part, self.away = self.part.to(dtype), nan(self.away.shape, dtype)
        self.param.data = self.away

    def end(self) -> None:
        """Makes the parameter an ordinary one, whose values the caller has taken."""
        delattr(self.param, _KEY)
        del self.param.__deepcopy__


def _zeros(count: int, dtype: torch.dtype) -> torch.Tensor:
    """Returns memory that goes back to the system when it is freed, if it is large."""
    size = count * dtype.itemsize
    if size < _LARGE:
        return torch.zeros(count, dtype=dtype)
    return torch.frombuffer(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), dtype=dtype)


def _trim() -> None:
    """Gives freed memory back to the system. The C library keeps that of large tensors, and cannot use it again for tensors of the
    same size, because these are aligned."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _shared(values: torch.Tensor, comm: libds.Comm, root: int) -> torch.Tensor:
    flat = values.contiguous().reshape(-1)
    if comm.size > 1:
        comm.broadcast(flat.view(torch.uint8), root)
    return flat


def _part(flat: torch.Tensor, comm: libds.Comm) -> torch.Tensor:
    """Returns a copy of this rank's part of a flattened parameter. All ranks' parts have one size; zeros fill the last ones."""
    count = -(-flat.numel() // comm.size)
    part = _zeros(count, flat.dtype)
    mine = flat[comm.rank * count:(comm.rank + 1) * count]
    part[:mine.numel()] = mine
    return part


@_directly
def _copy(one: Slice, memo: dict[int, Any]) -> torch.nn.Parameter:
    """Copies a cut parameter to another cut one; a whole one to a whole one."""
    if one.users:
        copy = torch.nn.Parameter(one.param.detach().clone(), one.param.requires_grad)
    else:
        copy = torch.nn.Parameter(one.away, one.param.requires_grad)
        Slice(copy, one.comm, one.part.clone())
    memo[id(one.param)] = copy
    return copy


def slice_of(param: Any) -> Slice | None:
    """Returns this rank's part of a parameter, or None if the parameter is not cut."""
    one = getattr(param, _KEY, None)
    return one if one is not None and one.param is param else None


def _slices(values: Iterable[Any]) -> Iterator[Slice]:
    for value in values:
        if isinstance(value, torch.nn.Parameter):
            one = slice_of(value)
            if one is not None:
                yield one
        elif isinstance(value, (list, tuple)):
            yield from _slices(value)


_LOADS = "_libds_loads"


def _attach(module: torch.nn.Module) -> None:
    """Makes load_state_dict of a module fill its cut parameters."""
    if not hasattr(module, _LOADS):
        setattr(module, _LOADS, [])
        module._register_load_state_dict_pre_hook(_open, with_module=True)
        module.register_load_state_dict_post_hook(_loaded)


def _open(module: torch.nn.Module, state: Mapping[str, Any], prefix: str, *rest: Any) -> None:
    for key, param in module._parameters.items():
        one = slice_of(param)
        if one is not None and one.users == 0 and getattr(state.get(prefix + key), "shape", None) == param.shape:
            one.fill()
            getattr(module, _LOADS).append(one)


def _loaded(module: torch.nn.Module, keys: Any) -> None:
    opened = getattr(module, _LOADS)
    while opened:
        opened.pop().filled()


def cast(module: torch.nn.Module, dtype: torch.dtype) -> None:
    """Casts the cut parameters of a module, which then casts the others."""
    for one in _slices(module.parameters()):
        one.cast(dtype)


class Construction(torch.overrides.TorchFunctionMode):
    """Cuts the parameters of each module when its constructor has ended, as long as the context is open. Collective.

    Constructors of all classes of modules are wrapped meanwhile. A parent may go on to change the parameters of its children, because a
    function of torch gets whole ones.
    """

    def __init__(self, comm: libds.Comm) -> None:
        super().__init__()
        self._comm = comm
        self._wrapped: dict[type, Callable[..., None]] = {}
        self._running: list[torch.nn.Module] = []
        self._whole: list[Slice] = []

    def __enter__(self) -> Construction:
        self._wrap_below(torch.nn.Module)
        construction = self

        def defined(cls: type, **options: Any) -> None:
            super(torch.nn.Module, cls).__init_subclass__(**options)
            construction._wrap(cls)

        torch.nn.Module.__init_subclass__ = classmethod(defined)  # type: ignore[assignment]
        super().__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        del torch.nn.Module.__init_subclass__
        for cls, constructor in self._wrapped.items():
            setattr(cls, "__init__", constructor)
        self._wrapped = {}
        if exception[0] is None:
            self._keep(0)

    def _wrap_below(self, cls: type) -> None:
        for one in cls.__subclasses__():
            self._wrap(one)
            self._wrap_below(one)

    def _wrap(self, cls: type) -> None:
        constructor = cls.__dict__.get("__init__")
        if not callable(constructor) or cls in self._wrapped:
            return

        @functools.wraps(constructor)
        def construct(module: Any, *arguments: Any, **options: Any) -> None:
            if any(one is module for one in self._running):  # of a base class
                constructor(module, *arguments, **options)
                return
            self._running.append(module)
            try:
                constructor(module, *arguments, **options)
            finally:
                self._running.pop()
            self.cut(module)

        self._wrapped[cls] = constructor
        setattr(cls, "__init__", construct)

    def cut(self, module: torch.nn.Module) -> None:
        """Cuts all parameters of a module that are not cut yet, and have values of floating point on the CPU. Collective."""
        freed = 0
        for param in module.parameters():
            if (slice_of(param) is None and not torch.nn.parameter.is_lazy(param) and param.is_floating_point() and param.numel()
                    and param.device.type == "cpu" and param.layout is torch.strided):
                Slice.cut(param, self._comm)
                freed = max(freed, param.numel() * param.element_size())
        for one in module.modules():
            if one._parameters:
                _attach(one)
        if freed >= _LARGE:
            _trim()

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        if name in ("__get__", "__set__"):
            name = getattr(function.__self__, "__name__", "")
        if name not in _WITHOUT_VALUES:
            for one in list(_slices([*args, *(kwargs or {}).values()])):
                if one in self._whole:
                    self._whole.remove(one)
                elif one.users == 0:
                    one.gather()
                else:
                    continue  # the program has gathered it
                self._whole.append(one)
        result = function(*args, **(kwargs or {}))
        self._keep(_KEPT)
        return result

    def _keep(self, count: int) -> None:
        """Cuts parameters that functions have used, the oldest first, until `count` are whole. Collective."""
        while len(self._whole) > count:
            one = self._whole.pop(0)
            one.store(0)
            one.release()
