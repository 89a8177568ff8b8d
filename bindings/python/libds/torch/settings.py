"""The configuration of an engine, and what a client optimizer adds to it."""
from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch

import libds

from .updates import ClientUpdate

__all__ = ["Settings", "CLIENT_OPTIMIZERS"]


def _adam(decoupled: bool):
    def section(group: Mapping[str, Any]) -> dict[str, Any] | None:
        if group.get("amsgrad") or group.get("maximize"):
            return None
        return {"type": "AdamW" if decoupled or group.get("decoupled_weight_decay") else "Adam",
                "params": {**_some(group, "lr", "eps", "weight_decay", "betas"),
                           **({} if decoupled else {"adam_w_mode": bool(group.get("decoupled_weight_decay", False))})}}

    return section


def _sgd(group: Mapping[str, Any]) -> dict[str, Any] | None:
    return {"type": "SGD", "params": _some(group, "lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize")}


def _adagrad(group: Mapping[str, Any]) -> dict[str, Any] | None:
    return None if group.get("maximize") else {
        "type": "Adagrad", "params": _some(group, "lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps")}


#: Client optimizers whose update the engine has, with functions that make the section `optimizer` from a group, or None if the group
#: asks for more.
CLIENT_OPTIMIZERS = {torch.optim.AdamW: _adam(True), torch.optim.Adam: _adam(False), torch.optim.SGD: _sgd, torch.optim.Adagrad: _adagrad}
#: The numbers of a group that may differ between groups and change between steps.
_NUMBERS = {"Adam": ("lr", "weight_decay", "betas", "eps"), "AdamW": ("lr", "weight_decay", "betas", "eps"),
            "SGD": ("lr", "weight_decay", "momentum")}


def _some(group: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: _plain(group[name]) for name in names if name in group}


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, torch.Tensor) else value


def _section_of(optimizer: torch.optim.Optimizer, group: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the section `optimizer` for a group, or None if the engine does not have this update."""
    for kind in type(optimizer).__mro__:
        # A class that is derived from one of torch's, and has another step, is another optimizer.
        if kind in CLIENT_OPTIMIZERS and inspect.unwrap(type(optimizer).step) is inspect.unwrap(kind.step):
            return CLIENT_OPTIMIZERS[kind](group)
    return None


class Settings:
    """A configuration as the caller gave it, and the values that libds makes of it for a number of ranks."""

    def __init__(self, config: Any, ranks: int) -> None:
        if config is None:
            raise libds.errors.refuse("config must be a dictionary, JSON text or the path of a file, got None")
        if isinstance(config, Mapping) and config.get("steps_per_print") == math.inf:  # Accelerate's word for never
            config = {name: value for name, value in config.items() if name != "steps_per_print"}
        self.given = libds.merge_config(config, {})
        self._ranks = ranks
        #: The update of a client optimizer that the engine does not have.
        self.update: ClientUpdate | None = None
        self._read()

    def _read(self) -> None:
        self.values: dict[str, Any] = libds.describe_config(self.given, self._ranks)["config"]

    def take_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Makes the section `optimizer` from a client optimizer. If the engine does not have its update, the client's is used."""
        sections = [_section_of(optimizer, group) for group in optimizer.param_groups]
        if None in sections or any(self._fixed(section) != self._fixed(sections[0]) for section in sections):
            self.update = ClientUpdate(optimizer)
            sections = [self.update.section()]
        self.given["optimizer"] = sections[0]
        self._read()

    @staticmethod
    def _fixed(section: Mapping[str, Any]) -> dict[str, Any]:
        """Returns what all groups of an engine have in common."""
        own = _NUMBERS.get(section["type"], ("lr", "weight_decay"))
        return {"type": section["type"], **{name: value for name, value in section["params"].items() if name not in own}}

    def drop_scheduler(self) -> None:
        """Leaves the learning rate to a client's scheduler."""
        self.given.pop("scheduler", None)
        self._read()

    @property
    def kind(self) -> str:
        """The type of the engine's optimizer."""
        return self.values.get("optimizer", {}).get("type", "AdamW")

    @property
    def numbers(self) -> tuple[str, ...]:
        """The names of the numbers that a group of parameters may have for itself."""
        return _NUMBERS.get(self.given.get("optimizer", {}).get("type", self.kind), ("lr", "weight_decay"))

    @property
    def scheduled(self) -> bool:
        """Whether the engine changes learning rates by the section `scheduler`."""
        return bool(self.given.get("scheduler", {}).get("type"))

    def get(self, path: str, default: Any = None) -> Any:
        """Returns the value at a dotted path."""
        value: Any = self.values
        for name in path.split("."):
            if not isinstance(value, Mapping) or name not in value:
                return default
            value = value[name]
        return value

    @property
    def dtype(self) -> torch.dtype:
        """The type of parameters and gradients."""
        if self.get("fp16.enabled"):
            return torch.float16
        return torch.bfloat16 if self.get("bf16.enabled") else torch.float32

    def base_group(self) -> dict[str, Any]:
        """Returns the numbers of a group that sets none itself."""
        params = self.get("optimizer.params", {})
        return {name: params[name] for name in self.numbers if name in params}

    def for_engine(self, frozen: Iterable[str], group: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the configuration of the engine, in which `frozen` are not trained and `group` has the numbers of group 0."""
        made = dict(self.given)
        section = dict(made.get("optimizer") or {"type": "AdamW"})
        numbers = {name: _plain(value) for name, value in group.items() if name in self.numbers}
        section["params"] = {**(section.get("params") or {}), **numbers}
        made["optimizer"] = section
        frozen = list(frozen)
        if frozen:
            made["frozen_parameters"] = frozen
        return made
