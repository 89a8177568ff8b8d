"""ZeRO stage 3 as a program sees it: parameters that are whole for a while, and how models are made."""
from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

import libds

from .parameters import Held, held_of

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
    partitioned parameters are lost. Parameters that belong to no engine stay as they are.
    """

    def __init__(self, params: Any, modifier_rank: int | None = None, fwd_module: torch.nn.Module | None = None, enabled: bool = True) -> None:
        found = {id(held): held for held in map(held_of, _parameters_in(params)) if held is not None} if enabled else {}
        self._held: list[Held] = list(found.values())
        self._rank = modifier_rank
        self._before: list[int] = []

    def __enter__(self) -> None:
        partitioned = [held for held in self._held if not held.whole]
        if partitioned:
            partitioned[0].home.leases.acquire(partitioned)
        self._before = [held.param._version for held in self._held]
        if self._rank is not None:
            for held in partitioned:
                assert held.tensor is not None
                held.param.data = held.tensor.clone()

    def __exit__(self, kind: Any, *exception: Any) -> None:
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
        home.write([(held, tensor) for held, tensor in values if home.comm.size > 1 or held.param._version != self._before[self._held.index(held)]])
        home.refresh()


class Init:
    """Accepted around the construction of a model, as in DeepSpeed.

    The model is constructed whole, in the memory of every rank; `initialize` gives all ranks the values of rank 0 and then
    keeps this rank's part.
    """

    def __init__(self, module: torch.nn.Module | None = None, *arguments: Any, dtype: torch.dtype | None = None, enabled: bool = True, **options: Any) -> None:
        self._dtype = dtype if enabled else None
        self._default: torch.dtype | None = None

    def __enter__(self) -> Init:
        if self._dtype is not None:
            self._default = torch.get_default_dtype()
            torch.set_default_dtype(self._dtype)
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._default is not None:
            torch.set_default_dtype(self._default)


def register_external_parameter(module: torch.nn.Module, parameter: torch.nn.Parameter) -> None:
    """Does nothing: a module may read any parameter of its model."""


def unregister_external_parameter(module: torch.nn.Module, parameter: torch.nn.Parameter) -> None:
    """Does nothing, see `register_external_parameter`."""
