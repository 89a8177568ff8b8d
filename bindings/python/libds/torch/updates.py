"""Client optimizers whose update the engine does not have: they run on the elements whose states a rank keeps.

The engine partitions, offloads and saves the states of such an optimizer like those of its own (optimizer.type "Callback"). That works
for every optimizer of torch, or of another package, that updates each element by its value, gradient and states alone. Whether one
does is tried out before the engine is made.
"""
from __future__ import annotations

import collections
import copy
import re
from collections.abc import Mapping
from typing import Any

import torch

import libds

__all__ = ["ClientUpdate"]


class ClientUpdate:
    """The update of an engine by a client optimizer."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._client = optimizer
        self._kind = type(optimizer).__name__
        #: An optimizer that shares nothing with the client but its class and settings.
        self._own = copy.copy(optimizer)
        for name in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"):
            if hasattr(self._own, name):
                setattr(self._own, name, collections.OrderedDict())
        self._groups: dict[int, int] = {}
        self._rates = False
        #: For each group, what its state has, with the values after three updates of a trial.
        try:
            self._forms = [self._probe(group) for group in optimizer.param_groups]
        except libds.Error:
            raise
        except Exception as error:
            raise self._refusal(f"cannot update a single parameter: {error}") from error
        #: The names of the states that each element has.
        self.states = list(dict.fromkeys(name for form in self._forms for name, value in form.items() if _of_elements(value)))

    def section(self) -> dict[str, Any]:
        """Returns the section `optimizer` of the configuration."""
        group = self._client.param_groups[0]
        numbers = {name: float(group[name]) for name in ("lr", "weight_decay") if name in group}
        return {"type": "Callback", "params": {**numbers, "states": self.states}}

    def begin(self, numbers: Mapping[int, int], rates: bool) -> None:
        """Tells the number of each parameter, by its id, and whether the engine's schedule sets the rates."""
        self._rates = rates
        self._groups = {numbers[id(param)]: at for at, group in enumerate(self._client.param_groups) for param in group["params"]
                        if id(param) in numbers}

    def __call__(self, elements: libds.Elements) -> None:
        at = self._groups[elements.param]
        group, form = self._client.param_groups[at], self._forms[at]
        if self._rates:
            group = {**group, "lr": elements.lr}
        values, grads = torch.from_dlpack(elements.values), torch.from_dlpack(elements.grads)
        states = {name: torch.from_dlpack(state) for name, state in zip(self.states, elements.states)}
        param = torch.nn.Parameter(values)
        param.grad = grads
        if elements.update > 1:
            self._own.state[param] = {name: states[name] if _of_elements(value) else _counted(value, elements.update - 1)
                                      for name, value in form.items()}
        self._step(param, group)
        made = self._own.state.pop(param, {})
        with torch.no_grad():
            for name, value in made.items():
                if name in states and value.data_ptr() != states[name].data_ptr():
                    states[name].copy_(value)
            if param.data_ptr() != values.data_ptr():
                values.copy_(param)
        self._own.param_groups = []

    def _step(self, param: torch.nn.Parameter, group: Mapping[str, Any]) -> None:
        self._own.param_groups = [{**group, "params": [param]}]
        type(self._own).step(self._own)

    # ------------------------------------------------------------ the trial

    def _probe(self, group: Mapping[str, Any]) -> dict[str, Any]:
        """Makes three updates of a matrix and of its rows in a group. Returns the state of an element, and refuses an optimizer whose rows come out
        differently or whose state cannot be cut into elements."""
        draw = torch.Generator().manual_seed(7)
        whole = torch.randn(4, 3, generator=draw)
        form: dict[str, Any] = {}
        parts = [(whole.clone(), slice(None))] + [(whole[row].clone(), row) for row in range(4)]
        states: list[dict[str, Any]] = [{} for _ in parts]
        for _ in range(3):
            grads = torch.randn(4, 3, generator=draw)
            for at, (values, rows) in enumerate(parts):
                self._own.state = collections.defaultdict(dict)
                param = torch.nn.Parameter(values)
                param.grad = grads[rows].clone()
                if states[at]:
                    self._own.state[param] = states[at]
                self._step(param, group)
                states[at] = dict(self._own.state.get(param, {}))
                values.copy_(param.detach())
        self._own.state = collections.defaultdict(dict)
        rows = torch.stack([values for values, _ in parts[1:]])
        if not torch.allclose(parts[0][0], rows, rtol=1e-5, atol=1e-6):
            raise self._refusal("updates elements by more than their own values, so ranks cannot keep parts of its states")
        for name, value in states[1].items():
            if _of_elements(value) and value.shape == (3,):
                if not re.fullmatch("[a-z][a-z0-9_]{0,63}", name):
                    raise self._refusal(f"calls a state '{name}'; names have letters a to z, digits and _")
                form[name] = value
            elif value is None or name == "step" and float(value) == 3:
                form[name] = value
            else:
                raise self._refusal(f"has a state '{name}' that is not of each element")
        return form

    def _refusal(self, why: str) -> libds.Unsupported:
        return libds.Unsupported(libds.Status.UNSUPPORTED, f"optimizer: {self._kind} {why}")


def _of_elements(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 0


def _counted(value: Any, count: int) -> Any:
    """Returns a counter of updates in the form of `value`."""
    if value is None:
        return None
    return torch.full_like(value, count) if isinstance(value, torch.Tensor) else type(value)(count)
