"""Parameters whose values are present only while a module needs them (ZeRO stage 3).

- A module leases its own parameters while its forward runs, and those of other modules that it reads, because `module._parameters` is a
  dictionary that leases on access.
- Autograd saves views of leased memory, which is used for other values after the lease. So while a forward runs, a saved view is kept as
  (parameter, size, stride, offset), and leased again when a node of backward asks for it, until the next node asks.
- If a checkpoint recomputes modules inside backward, their parameters stay leased until their gradients have come.
"""
from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch

import libds

from .gradients import graph_task
from .parameters import Held, Parameters
from .states import UNIT
from .zero import ZeroParamStatus

__all__ = ["Leases", "tensors_in"]


def tensors_in(value: Any, depth: int = 4) -> Iterator[torch.Tensor]:
    """Yields the tensors in an output of a module: in tuples, lists, mappings, data classes and other objects."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth == 0 or value is None or isinstance(value, (str, bytes, int, float)):
        return
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item, depth - 1)
    elif isinstance(value, (list, tuple, set)):
        for item in value:
            yield from tensors_in(item, depth - 1)
    elif dataclasses.is_dataclass(value) or hasattr(value, "__dict__"):
        for item in list(vars(value).values()):
            yield from tensors_in(item, depth - 1)


class _Saved(NamedTuple):
    """A view of a parameter that autograd has saved."""

    held: Held
    size: torch.Size
    stride: tuple[int, ...]
    offset: int


class _Kept(NamedTuple):
    """Any other tensor that autograd has saved, with its version."""

    tensor: torch.Tensor
    version: int


class _LeasingDict(dict):
    """The parameters of a module, which are leased when they are read while a module runs."""

    def __init__(self, params: Mapping[str, Any], leases: Leases) -> None:
        super().__init__(params)
        self._leases = leases

    def __getitem__(self, key: str) -> Any:
        param = super().__getitem__(key)
        held = self._leases.by_id.get(id(param))
        if held is not None and held.leases == 0 and self._leases.frames:
            self._leases.read(held)
        return param

    def __reduce__(self) -> Any:
        return dict, (dict(self),)  # a copy has parameters of its own


class _Hook:
    """A hook that does nothing in a copy of its module."""

    def __init__(self, call: Callable[..., Any] | None = None) -> None:
        self._call = call

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return None if self._call is None else self._call(*arguments, **options)

    def __reduce__(self) -> Any:
        return _Hook, ()


class Leases:
    """The leases of the partitioned parameters of an engine."""

    def __init__(self, parameters: Parameters, module: torch.nn.Module) -> None:
        self._engine = parameters.engine
        self._checks = os.environ.get("LIBDS_CHECK") == "1"
        self.held = [held for held in parameters.all if not held.whole]
        self.by_id = {id(held.param): held for held in self.held}
        #: The parameters that each running module has leased, with the innermost module last.
        self.frames: list[list[Held]] = []
        self._places: dict[int, Held] = {}
        self._recomputed: dict[int, list[Held]] = {}
        self._asked: list[Held] = []
        #: The node of autograd that asked last, and the unit that it asked for.
        self._node: Any = None
        self._unit: list[Held] | None = None
        self._saving: Any = None
        self._module = module
        #: The unit of each parameter that is in one, by the number of the parameter.
        self.units: dict[int, list[Held]] = {}
        self._hooks: list[Any] = []
        for one in module.modules():
            if getattr(one, UNIT, False):
                unit = [self.by_id[id(param)] for param in one.parameters() if id(param) in self.by_id]
                self.units.update((held.number, unit) for held in unit if held.number not in self.units)
        for one in module.modules():
            self._attach(one)
        for held in parameters.all:
            param = held.param
            param.ds_id, param.ds_numel, param.ds_shape = held.number, param.numel(), param.shape
            param.ds_status = ZeroParamStatus.AVAILABLE if held.whole else ZeroParamStatus.NOT_AVAILABLE
        for held in self.held:
            held.param.__deepcopy__ = _Copy(held)

    def _attach(self, module: torch.nn.Module) -> None:
        named = [(key, self.by_id[id(param)]) for key, param in module._parameters.items() if id(param) in self.by_id]
        own = [held for _, held in named]
        leased = [self.by_id[id(param)] for param in module.parameters() if id(param) in self.by_id] if getattr(module, UNIT, False) else own
        if own:
            module._parameters = _LeasingDict(module._parameters, self)
        self._hooks += [
            module.register_forward_pre_hook(_Hook(lambda one, args: self._enter(leased)), prepend=True),
            module.register_forward_hook(_Hook(lambda one, args, output: self._leave(output)), always_call=True),
        ]
        if own:
            self._hooks += [
                module.register_state_dict_pre_hook(_Hook(lambda one, prefix, keep: self.acquire(own))),
                module.register_state_dict_post_hook(_Hook(lambda one, state, prefix, local: self._copied(named, state, prefix))),
                module._register_load_state_dict_pre_hook(_Hook(lambda state, prefix, *rest: self._open(named, state, prefix))),
                module.register_load_state_dict_post_hook(_Hook(lambda one, keys: self._loaded(own))),
            ]

    def close(self) -> None:
        """Removes all hooks."""
        for hook in self._hooks:
            hook.remove()
        for module in self._module.modules():
            if isinstance(module._parameters, _LeasingDict):
                module._parameters = dict(module._parameters)
        for held in self.held:
            del held.param.__deepcopy__
        for param in self._module.parameters():
            for name in ("ds_id", "ds_numel", "ds_shape", "ds_status"):
                param.__dict__.pop(name, None)

    # ------------------------------------------------------------ counted leases

    def acquire(self, several: Iterable[Held]) -> None:
        """Leases parameters. Collective if any of them was away."""
        several = list(several)
        missing = {held.number: held for held in several if held.leases == 0}
        if missing:
            next(iter(missing.values())).home.refresh()
            self._engine._call(libds.lowlevel.gather_params, list(missing))
        for held in missing.values():
            tensor = held.home.shown(held)
            if self._checks:
                tensor = tensor.clone()
            self._places[tensor.data_ptr()] = held
            held.show(tensor)
            held.param.ds_status = ZeroParamStatus.AVAILABLE
        for held in several:
            held.leases += 1

    def release(self, several: Iterable[Held]) -> None:
        """Gives leases back. Collective if it is the last lease of any parameter."""
        ended = []
        for held in several:
            held.leases -= 1
            if held.leases == 0:
                ended.append(held)
                tensor = held.tensor
                assert tensor is not None
                del self._places[tensor.data_ptr()]
                held.hide()
                held.param.ds_status = ZeroParamStatus.NOT_AVAILABLE
                if self._checks:
                    tensor.fill_(float("nan"))
        if ended:
            self._engine._call(libds.lowlevel.release_params, [held.number for held in ended])

    # ------------------------------------------------------------ forward

    @torch._disable_dynamo
    def _enter(self, own: list[Held]) -> None:
        if not self.frames and torch.is_grad_enabled() and graph_task() < 0:
            self._saving = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)
            self._saving.__enter__()
        frame: list[Held] = []
        self.frames.append(frame)
        if own:
            self.acquire(own)
            frame += own

    @torch._disable_dynamo
    def read(self, held: Held) -> None:
        """Leases a parameter that the running module reads, until the module ends."""
        self.acquire([held])
        self.frames[-1].append(held)

    @torch._disable_dynamo
    def _leave(self, output: Any) -> None:
        frame = self.frames.pop()
        if graph_task() >= 0:
            for held in frame:
                self._recomputed.setdefault(held.number, []).append(held)
        elif frame:
            shown = self._shown_in(output, frame)
            if shown:
                (self.frames[-1] if self.frames else self._asked).extend(shown)
                for held in shown:
                    frame.remove(held)
            self.release(frame)
        if not self.frames and self._saving is not None:
            self._saving.__exit__(None, None, None)
            self._saving = None

    def _shown_in(self, output: Any, frame: list[Held]) -> list[Held]:
        """Returns the parameters that an output of a module views. They stay leased as long as the calling module runs."""
        found = []
        for tensor in tensors_in(output):
            held = self._place_of(tensor)
            if held is not None and held in frame and held not in found:
                found.append(held)
        return found

    def _place_of(self, tensor: torch.Tensor) -> Held | None:
        try:
            return self._places.get(tensor.data_ptr() - tensor.storage_offset() * tensor.element_size())
        except RuntimeError:  # a tensor without memory
            return None

    # ------------------------------------------------------------ backward

    def _pack(self, tensor: torch.Tensor) -> _Saved | _Kept:
        held = self._place_of(tensor)
        if held is None:
            return _Kept(tensor, tensor._version)
        return _Saved(held, tensor.size(), tensor.stride(), tensor.storage_offset())

    def _unpack(self, saved: _Saved | _Kept) -> torch.Tensor:
        if isinstance(saved, _Kept):
            if saved.tensor._version != saved.version:
                raise RuntimeError("one of the variables needed for gradient computation has been modified by an inplace operation: it is at version "
                                   f"{saved.tensor._version}; expected version {saved.version} instead")
            return saved.tensor
        held = saved.held
        if torch.is_grad_enabled() and graph_task() >= 0:
            raise libds.Unsupported(libds.Status.UNSUPPORTED, f"backward with create_graph is not available at ZeRO stage 3: it would read parameter "
                                    f"'{held.name}' again later; use stage 2")
        node = torch._C._current_autograd_node()
        unit = self.units.get(held.number)
        if (node is None or node is not self._node) and (unit is None or unit is not self._unit):
            self._end_node()
        if unit is None:
            self.acquire([held])
            self._asked.append(held)
        elif unit is not self._unit:
            self.acquire(unit)
            self._asked.extend(unit)
        self._node, self._unit = node, unit
        assert held.tensor is not None
        view = held.tensor.as_strided(saved.size, saved.stride, saved.offset)
        view.ds_status = ZeroParamStatus.AVAILABLE  # type: ignore[attr-defined]  # a function of TRL asks what it has saved
        return view

    def _end_node(self) -> None:
        asked, self._asked = self._asked, []
        self._node = self._unit = None
        self.release(asked)

    def came(self, held: Held) -> None:
        """Ends the leases of a recomputation when the gradient of the parameter has come. Those of units end with backward, because
        ranks may have gradients of different parameters of a unit."""
        if held.number in self._recomputed and held.number not in self.units:
            self.release(self._recomputed.pop(held.number))

    def end_backward(self) -> None:
        """Ends all leases that a backward has left. All ranks do so in the same order, even if they recomputed a unit in different ones."""
        self._end_node()
        recomputed, self._recomputed = self._recomputed, {}
        self.release([held for _, several in sorted(recomputed.items()) for held in several])

    # ------------------------------------------------------------ state_dict

    def _copied(self, named: list[tuple[str, Held]], state: dict[str, Any], prefix: str) -> None:
        for key, held in named:
            value = state.get(prefix + key)
            if isinstance(value, torch.Tensor) and self._place_of(value) is held:
                state[prefix + key] = value.detach().clone()
        self.release([held for _, held in named])

    def _open(self, named: list[tuple[str, Held]], state: Mapping[str, Any], prefix: str) -> None:
        """Gives the parameters of `state` memory that load_state_dict will fill."""
        for key, held in named:
            value = state.get(prefix + key)
            if held.leases == 0 and getattr(value, "shape", None) == held.param.shape:
                held.param.data = torch.empty(held.param.shape, dtype=held.home.dtype)

    def _loaded(self, own: list[Held]) -> None:
        opened = [held for held in own if held.leases == 0 and held.param.data_ptr() != held.away.data_ptr()]
        filled = [(held, held.param.detach()) for held in opened if held.param._version != held.version]
        for held in opened:
            held.hide()
        if filled:
            filled[0][0].home.write(filled)


class _Copy:
    """Copies a partitioned parameter, which is possible only while it is leased."""

    def __init__(self, held: Held) -> None:
        self._held = held

    def __call__(self, memo: Any) -> Any:
        held = self._held
        if held.tensor is None:
            raise libds.StateError(libds.Status.STATE, f"parameter '{held.name}' is away (ZeRO stage 3): copy the module inside `with engine.gathered():`")
        copy = torch.nn.Parameter(held.tensor.clone(), held.param.requires_grad)
        memo[id(held.param)] = copy
        return copy

    def __reduce__(self) -> Any:
        return type(None), ()
