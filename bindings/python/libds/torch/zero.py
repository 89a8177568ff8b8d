"""ZeRO stage 3 as a program sees it: parameters that are whole for a while, and how models are made."""
from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

import libds

from .parameters import Held, held_of
from .slices import Construction, Slice, slice_of

__all__ = ["GatheredParameters", "Init", "ZeroParamStatus", "register_external_parameter", "unregister_external_parameter"]


class ZeroParamStatus(enum.Enum):
    """Whether the values of a parameter are there."""

    AVAILABLE = 1
    NOT_AVAILABLE = 2
    INFLIGHT = 3


def _parameters_in(params: Any) -> Iterator[Any]:
    if isinstance(params, torch.Tensor):
        yield params
    elif isinstance(params, torch.nn.Module):
        yield from params.parameters()
    elif isinstance(params, Iterable):
        for one in params:
            yield from _parameters_in(one)


class GatheredParameters:
    """Makes parameters whole for a `with` block. Collective.

    With `modifier_rank` the values that this rank has at the end of the block become those of all ranks. Without it, changes to
    partitioned parameters are lost. Parameters that neither belong to an engine nor were made inside `Init` stay as they are.
    """

    def __init__(self, params: Any, modifier_rank: int | None = None, fwd_module: torch.nn.Module | None = None,
                 enabled: bool = True) -> None:
        params = list({id(param): param for param in _parameters_in(params)}.values()) if enabled else []
        self._held: list[Held] = [held for held in map(held_of, params) if held is not None]
        self._slices: list[Slice] = [one for one in map(slice_of, params) if one is not None]
        self._rank = modifier_rank
        self._before: list[int] = []

    def __enter__(self) -> None:
        for one in self._slices:
            one.gather()
        partitioned = [held for held in self._held if not held.whole]
        if partitioned:
            partitioned[0].home.leases.acquire(partitioned)
        self._before = [held.param._version for held in self._held]
        if self._rank is not None:
            for held in partitioned:
                assert held.tensor is not None
                held.param.data = held.tensor.clone()

    def __exit__(self, kind: Any, *exception: Any) -> None:
        for one in self._slices:
            if self._rank is not None and kind is None:
                one.store(self._rank)
            one.release()
        partitioned = [held for held in self._held if not held.whole]
        values = [(held, held.param.detach()) for held in self._held]
        if partitioned:
            partitioned[0].home.leases.release(partitioned)
        if self._rank is not None and kind is None and self._held:
            self._write(values)

    def _write(self, values: Sequence[tuple[Held, torch.Tensor]]) -> None:
        home = self._held[0].home
        if home.comm.size > 1:
            for _, tensor in values:
                whole = tensor.contiguous()
                home.comm.broadcast(whole.reshape(-1).view(torch.uint8), self._rank)
                if whole.data_ptr() != tensor.data_ptr():
                    tensor.copy_(whole)
        home.write([(held, tensor) for (held, tensor), before in zip(values, self._before)
                    if home.comm.size > 1 or held.param._version != before])
        home.refresh()


class Init:
    """Constructs a model in parts: each parameter is cut to this rank's part when its module has been constructed. Collective.

    All ranks must construct the same model; their values are those of rank 0. Parameters keep their shapes and read as NaN, except
    inside `GatheredParameters` and, as long as the context is open, in functions of torch. `initialize` gives the parts to the engine.

    Args:
        module: a module that exists already and is cut at once.
        dtype: the type that parameters are constructed with.
        enabled: whether to do all that.
    """

    _active = False

    def __init__(self, module: torch.nn.Module | None = None, *arguments: Any, dtype: torch.dtype | None = None, enabled: bool = True,
                 **options: Any) -> None:
        self._dtype = dtype if enabled else None
        self._enabled = enabled
        self._default: torch.dtype | None = None
        self._construction: Construction | None = None
        if module is not None and enabled:
            self._begin().cut(module)

    @staticmethod
    def _begin() -> Construction:
        import libds.torch  # pylint: disable=import-outside-toplevel

        libds.torch.init_distributed()
        return Construction(libds.torch.communicator())

    def __enter__(self) -> Init:
        if self._dtype is not None:
            self._default = torch.get_default_dtype()
            torch.set_default_dtype(self._dtype)
        if self._enabled and not Init._active:
            self._construction = self._begin().__enter__()
            Init._active = True
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._construction is not None:
            Init._active = False
            self._construction.__exit__(*exception)
            self._construction = None
        if self._default is not None:
            torch.set_default_dtype(self._default)


def register_external_parameter(module: torch.nn.Module, parameter: torch.nn.Parameter) -> None:
    """Does nothing: a module may read any parameter of its model."""


def unregister_external_parameter(module: torch.nn.Module, parameter: torch.nn.Parameter) -> None:
    """Does nothing, see `register_external_parameter`."""
