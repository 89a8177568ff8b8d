"""The parameters of a module as parameters of an engine: where their values lie, and what a user changes between steps."""
from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

import libds

from .slices import Slice, nan, slice_of

__all__ = ["Held", "Parameters", "held_of", "lent", "parameters_of"]

_KEY = "_libds_held"
_MAX_DIMS = 4  # of a parameter in ds.h


class Held:
    """A parameter of a module, which an engine trains or keeps."""

    __slots__ = ("param", "name", "number", "owner", "key", "dims", "whole", "tensor", "away", "leases", "version", "trained", "given",
                 "late", "home", "slice", "__weakref__")

    def __init__(self, param: torch.nn.Parameter, name: str, owner: torch.nn.Module | None, key: str, home: Parameters) -> None:
        self.param, self.name, self.owner, self.key, self.home = param, name, owner, key, home
        self.number = -1
        self.dims = list(param.shape) if param.dim() <= _MAX_DIMS else [param.numel()]
        #: Whether every rank has the whole parameter, for as long as the engine lives.
        self.whole = True
        #: What `param.data` is while its values are there, and what it is while they are away.
        self.tensor: torch.Tensor | None = None
        self.away: torch.Tensor | None = None
        self.leases = 0
        #: `param._version` when its values were last those of the engine.
        self.version = 0
        self.trained = False
        #: Whether the engine has its gradient of the running micro-step.
        self.given = False
        #: Whether its gradient comes in parts, so that it is complete only when backward ends.
        self.late = False
        #: This rank's part of a parameter of zero.Init, until the engine has it.
        self.slice: Slice | None = slice_of(param)

    def show(self, tensor: torch.Tensor) -> None:
        """Makes `tensor` the values of the parameter."""
        self.tensor = tensor
        self.param.data = tensor

    def __reduce__(self) -> Any:
        return type(None), ()  # a parameter that is read from a file belongs to no engine

    def hide(self) -> None:
        """Takes the values away. The parameter keeps its shape; reading it gives NaN, and torch refuses to write it."""
        self.tensor = None
        self.param.data = self.away


def lent(grad: torch.Tensor) -> Any:
    """Returns a low-level tensor over a gradient, for grads_ready. The engine's methods do the same after checks of their arguments, which
    cost more than the call itself."""
    if grad.layout is not torch.strided:
        grad = grad.to_dense()
    if grad.requires_grad:
        grad = grad.detach()
    return libds.lowlevel.tensor_from(grad if grad.dim() <= _MAX_DIMS else grad.reshape(-1), False, 0)


def held_of(param: Any) -> Held | None:
    """Returns what an engine knows about a parameter, or None if it belongs to no engine."""
    held = getattr(param, _KEY, None)
    return held if held is not None and held.param is param and not held.home.engine.closed else None


def parameters_of(module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Parameter, torch.nn.Module, str]]:
    """Yields each parameter of a module once: its name, itself, the module that has it and its key there."""
    seen: set[int] = set()
    for prefix, owner in module.named_modules():
        for key, param in owner._parameters.items():
            if param is not None and id(param) not in seen:
                seen.add(id(param))
                yield f"{prefix}.{key}" if prefix else key, param, owner, key


class Parameters:
    """Those of the given parameters that have elements and are of floating point. Others stay with torch."""

    def __init__(self, named: Iterable[tuple[str, torch.nn.Parameter, torch.nn.Module | None, str]], dtype: torch.dtype) -> None:
        self.engine: Any = None
        self.dtype = dtype
        self.all: list[Held] = [self._hold(param, name, owner, key) for name, param, owner, key in named
                                if param.is_floating_point() and param.numel() > 0]
        if not self.all:
            raise libds.errors.refuse("there must be at least one parameter of floating point, got none")
        self._stale = False
        #: The leases of the engine, at ZeRO stage 3, and the group of ranks.
        self.leases: Any = None
        self.comm: Any = None
        self.by_name = {held.name: held for held in self.all}

    def _hold(self, param: torch.nn.Parameter, name: str, owner: torch.nn.Module | None, key: str) -> Held:
        if held_of(param) is not None:
            raise libds.StateError(libds.Status.STATE, f"parameter '{name}' belongs to an engine already: destroy() that one first")
        if param.device.type != "cpu" or param.layout is not torch.strided:
            raise libds.Unsupported(libds.Status.UNSUPPORTED, f"parameter '{name}' must be a dense tensor on the CPU, got one on "
                                    f"{param.device} with layout {param.layout}")
        return Held(param, name, owner, key, self)

    def choose(self, trained: Iterable[torch.nn.Parameter], frozen: Sequence[str]) -> None:
        """Marks which parameters are trained: those of `trained` that require a gradient and match none of the patterns."""
        ids = {id(param) for param in trained}
        for held in self.all:
            held.trained = id(held.param) in ids and held.param.requires_grad and not any(
                fnmatch.fnmatchcase(held.name, pattern) for pattern in frozen)

    def broadcast(self, comm: libds.Comm, module: torch.nn.Module) -> None:
        """Gives all ranks the values of rank 0, because each may have drawn its own."""
        self.comm = comm
        if comm.size == 1:
            return
        tensors: list[torch.Tensor] = [held.param for held in self.all if held.slice is None]
        tensors += [buffer for buffer in module.buffers() if buffer.numel() and buffer.device.type == "cpu"]
        for tensor in tensors:
            values = tensor.detach().contiguous()
            comm.broadcast(values.reshape(-1).view(torch.uint8))
            if values.data_ptr() != tensor.data_ptr():
                tensor.detach().copy_(values)

    def start(self, config: Mapping[str, Any], comm: libds.Comm | None = None, update: Any = None) -> libds.DelegateEngine:
        """Makes the engine and moves the values of all parameters into it. Collective."""
        threads = torch.get_num_threads() if "OMP_NUM_THREADS" in os.environ else 0
        self.engine = engine = libds.DelegateEngine(config, comm=comm, threads=threads, init=self._initial(), update=update)
        for held in self.all:
            held.number = engine.add_param(held.name, held.dims).number
        engine.start()
        for held in self.all:
            setattr(held.param, _KEY, held)
            held.away = nan(held.param.shape, self.dtype)
            try:
                held.show(self.shown(held))
            except libds.StateError:
                held.whole = False
                held.hide()
            held.version = held.param._version
        for held in self.all:
            if held.slice is not None:
                self.write([(held, held.slice.whole())])
                held.slice.end()
                held.slice = None
        self.refresh()
        return engine

    def _initial(self) -> libds.engine.Init:
        """Returns the function that gives the engine the values of the parameters."""
        last: list[Any] = ["", None]

        def values_of(name: str, first: int, values: memoryview) -> None:
            if self.by_name[name].slice is not None:
                return  # start() writes it, because that communicates
            if last[0] != name:
                last[:] = [name, self.by_name[name].param.detach().reshape(-1)]
            torch.frombuffer(values, dtype=torch.float32).copy_(last[1][first:first + len(values)])

        return values_of

    def shown(self, held: Held) -> torch.Tensor:
        """Returns a tensor over the engine's own values of a parameter."""
        return torch.from_dlpack(self.engine._call(libds.lowlevel.engine_param_view, held.number)).view(held.param.shape)

    def end(self) -> None:
        """Gives the module values of its own, as far as this rank has them."""
        for held in self.all:
            if held.tensor is not None:
                held.param.data = held.tensor.clone()
            if getattr(held.param, _KEY, None) is held:
                delattr(held.param, _KEY)

    # ------------------------------------------------------------ changes between steps

    def take_edits(self) -> None:
        """Gives the engine the values of parameters that were changed since the last step. Collective if there are any."""
        edited = []
        for held in self.all:
            param = held.param
            if held.owner is not None and dict.get(held.owner._parameters, held.key) is not param:
                raise libds.StateError(libds.Status.STATE, f"parameter '{held.name}' is another object than when the engine was made: "
                                       f"copy values into it instead, or make a new engine")
            if held.tensor is None:
                self._require_away(held)
            elif param._version != held.version or param.data_ptr() != held.tensor.data_ptr():
                edited.append((held, param.detach()))
        if edited and self.leases is not None:
            self.leases.end_backward()
        self.write(edited)
        self.refresh()

    def _require_away(self, held: Held) -> None:
        if held.param._version != held.version or held.param.data_ptr() != held.away.data_ptr():
            raise libds.StateError(libds.Status.STATE, f"parameter '{held.name}' was changed while it is away (ZeRO stage 3): change it inside "
                                   f"GatheredParameters(..., modifier_rank=...)")

    def write(self, edited: Sequence[tuple[Held, torch.Tensor]]) -> None:
        """Writes whole values, which are the same on all ranks, to the masters; `refresh` must follow."""
        if not edited:
            return
        for held, values in edited:
            if values.shape != held.param.shape:
                raise libds.errors.refuse(f"parameter '{held.name}' must keep shape {tuple(held.param.shape)}, got {tuple(values.shape)}")
            first, count = self.engine.local_range(held.number)
            part = values.reshape(-1)[first:first + count].float().contiguous()
            self.engine.write_local(held.number, part)
        self._stale = True
        for held, _ in edited:
            held.param.data = held.away if held.tensor is None else held.tensor
            held.version = held.param._version

    def refresh(self) -> None:
        """Recomputes the values after `write`. Collective if any rank has written, which all or none of them do."""
        if self._stale:
            self._stale = False
            self.engine.refresh()

    def loaded(self) -> None:
        """Called when the engine has loaded other values: what was edited before is forgotten."""
        self._stale = False
        for held in self.all:
            if held.tensor is not None and held.param.data_ptr() != held.tensor.data_ptr():
                held.param.data = held.tensor
            held.version = held.param._version

    def require_unchanged(self) -> None:
        """Refuses a step if a parameter was changed between backward and step, because the update would lose the change."""
        for held in self.all:
            if held.tensor is not None and held.param._version != held.version:
                raise libds.StateError(libds.Status.STATE, f"parameter '{held.name}' was changed between backward and step: "
                                       f"change it after step()")

    def train(self, wanted: Callable[[Held], bool]) -> None:
        """Freezes the parameters that are not wanted and trains the others. Collective if that changes one."""
        for want in (False, True):
            changed = [held for held in self.all if held.trained is not want and wanted(held) is want]
            if changed:
                self.engine.freeze([held.number for held in changed], not want)
                for held in changed:
                    held.trained = want

    def require_gradient(self, held: Held) -> bool:
        """Whether a program wants a parameter trained."""
        return held.param.requires_grad and held.number in self.selected

    #: Numbers of the parameters that the optimizer has; others are never trained.
    selected: frozenset[int] = frozenset()
