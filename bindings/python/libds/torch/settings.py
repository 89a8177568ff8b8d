"""The configuration of an engine, and what a client optimizer adds to it."""
from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch

import libds

__all__ = ["Settings", "CLIENT_OPTIMIZERS"]


def _adam(decoupled: bool):
    def section(group: Mapping[str, Any]) -> dict[str, Any]:
        _refuse(group, "Adam", amsgrad=False, maximize=False)
        return {"type": "AdamW" if decoupled or group.get("decoupled_weight_decay") else "Adam",
                "params": {**_some(group, "lr", "eps", "weight_decay", "betas"),
                           **({} if decoupled else {"adam_w_mode": bool(group.get("decoupled_weight_decay", False))})}}

    return section


def _sgd(group: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "SGD", "params": _some(group, "lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize")}


def _adagrad(group: Mapping[str, Any]) -> dict[str, Any]:
    _refuse(group, "Adagrad", maximize=False)
    return {"type": "Adagrad", "params": _some(group, "lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps")}


#: Client optimizers whose update the engine has, with functions that make the section `optimizer` from a group.
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


def _refuse(group: Mapping[str, Any], kind: str, **needed: Any) -> None:
    for name, value in needed.items():
        if name in group and group[name] not in (value, None):
            raise libds.errors.refuse(f"optimizer: {name} of {kind} must be {value}, got {group[name]}")


class Settings:
    """A configuration as the caller gave it, and the values that libds makes of it for a number of ranks."""

    def __init__(self, config: Any, ranks: int) -> None:
        if config is None:
            raise libds.errors.refuse("config must be a dictionary, JSON text or the path of a file, got None")
        if isinstance(config, Mapping) and config.get("steps_per_print") == math.inf:  # Accelerate's word for never
            config = {name: value for name, value in config.items() if name != "steps_per_print"}
        self.given = libds.merge_config(config, {})
        self._ranks = ranks
        self._read()

    def _read(self) -> None:
        self.values: dict[str, Any] = libds.describe_config(self.given, self._ranks)["config"]

    def take_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Makes the section `optimizer` from a client optimizer."""
        section = next((CLIENT_OPTIMIZERS[kind] for kind in type(optimizer).__mro__ if kind in CLIENT_OPTIMIZERS), None)
        if section is None:
            raise libds.Unsupported(libds.Status.UNSUPPORTED, f"optimizer: the engine has the updates of "
                                    f"{', '.join(sorted(kind.__name__ for kind in CLIENT_OPTIMIZERS))}, not that of {type(optimizer).__name__}")
        self.given["optimizer"] = section(optimizer.param_groups[0])
        for group in optimizer.param_groups[1:]:
            other = section(group)
            fixed = {name: value for name, value in other["params"].items() if name not in self.numbers}
            mine = {name: value for name, value in self.given["optimizer"]["params"].items() if name not in self.numbers}
            if fixed != mine or other["type"] != self.given["optimizer"]["type"]:
                raise libds.errors.refuse(f"optimizer: its groups may differ in {', '.join(self.numbers)} only, got {fixed} beside {mine}")
        self._read()

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
