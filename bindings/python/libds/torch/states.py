"""Whole values, gradients and optimizer states of single parameters. All calls are collective. Those that read take a list of
parameters, too, and then return a list."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

import libds

from .parameters import Held, held_of

__all__ = ["safe_get_full_fp32_param", "safe_set_full_fp32_param", "safe_get_full_optimizer_state", "safe_set_full_optimizer_state",
           "safe_get_full_grad", "safe_set_full_grad", "set_z3_leaf_modules", "UNIT"]

#: The attribute that marks a module as one unit: all of its parameters are leased together.
UNIT = "_libds_unit"


def _need(param: Any) -> Held:
    held = held_of(param)
    if held is None:
        raise libds.errors.refuse(f"param must be a parameter of a model that libds.torch trains, got {type(param).__name__}")
    return held


def _read(param: Any, state: str) -> Any:
    if isinstance(param, (list, tuple)):
        return [_read(one, state) for one in param]
    held = _need(param)
    if state == "grad" and not held.trained:
        return None
    out = torch.empty(held.param.numel())
    held.home.refresh()
    held.home.engine.read(held.number, state, out=out)
    return out.view(held.param.shape)


def _write(param: Any, value: torch.Tensor, state: str) -> None:
    held = _need(param)
    held.home.engine.write(held.number, value.detach().float().reshape(-1).contiguous(), state)


def safe_get_full_fp32_param(param: Any) -> Any:
    """Returns the master of a parameter."""
    return _read(param, "master")


def safe_set_full_fp32_param(param: torch.nn.Parameter, value: torch.Tensor) -> None:
    """Replaces the master of a parameter, between steps."""
    _write(param, value, "master")


def safe_get_full_optimizer_state(param: Any, optim_state_key: str) -> Any:
    """Returns a state of the optimizer by torch's name, such as "exp_avg"."""
    return _read(param, optim_state_key)


def safe_set_full_optimizer_state(param: torch.nn.Parameter, value: torch.Tensor, optim_state_key: str) -> None:
    """Replaces a state of the optimizer, between steps."""
    _write(param, value, optim_state_key)


def safe_get_full_grad(param: Any) -> Any:
    """Returns the mean gradient of the step, after the backward of its last micro-step; None for a parameter that is not trained."""
    return _read(param, "grad")


def safe_set_full_grad(param: torch.nn.Parameter, value: torch.Tensor) -> None:
    """Replaces the mean gradient of the step, between its last backward and `step()`."""
    _write(param, value, "grad")


def set_z3_leaf_modules(model: torch.nn.Module, leaf_module_classes: Iterable[Any]) -> list[torch.nn.Module]:
    """Makes units of the modules of these classes, given as classes or as names: at ZeRO stage 3 all parameters of a unit are leased
    together, so that ranks may use different ones of them, as a mixture of experts does. Call it before `initialize`."""
    kinds = list(leaf_module_classes)
    names = {kind if isinstance(kind, str) else kind.__name__ for kind in kinds}
    found = [module for module in model.modules() if any(one.__name__ in names for one in type(module).__mro__)]
    if not found:
        raise libds.errors.refuse(f"leaf_module_classes must name classes of modules in the model, got {', '.join(sorted(names))}")
    for module in found:
        setattr(module, UNIT, True)
    return found
