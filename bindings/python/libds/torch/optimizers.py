"""The optimizer and the scheduler that `initialize` returns: numbers of groups that a program reads and writes."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import libds

from .parameters import Parameters
from .settings import Settings

__all__ = ["EngineOptimizer", "Scheduler"]


class EngineOptimizer(torch.optim.Optimizer):
    """The engine's optimizer as an optimizer of torch.

    `param_groups` has the numbers of each group. Values that a program or a scheduler of torch writes there apply from the next
    update on. The states are the engine's: `state` is empty, and checkpoints contain them. With a client optimizer, `param_groups` is
    that optimizer's list.
    """

    def __init__(self, groups: Sequence[dict[str, Any]], settings: Settings, client: torch.optim.Optimizer | None, step: Callable[[], Any]) -> None:
        self._engine: Any = None
        super().__init__([dict(group) for group in groups], {})
        self.client = client
        if client is not None:
            self.param_groups = client.param_groups
        self._settings = settings
        self._take_step = step
        self._known: list[dict[str, Any]] = []

    def begin(self, parameters: Parameters) -> None:
        """Adds all groups but the first to the engine, which already has the numbers of the first."""
        self._engine = parameters.engine
        numbers = {id(held.param): held.number for held in parameters.all}
        base = self._settings.base_group()
        for group in self.param_groups[1:]:
            own = {name: group[name] for name in self._settings.numbers if name in group}
            # A scheduler that names a rate for every group refuses the rate of a group.
            if self._settings.scheduled and own.get("lr") == base.get("lr"):
                own.pop("lr", None)
            members = [numbers[id(param)] for param in group["params"] if id(param) in numbers]
            self._engine.add_group(members, **{name: float(value) if name != "betas" else [float(beta) for beta in value] for name, value in own.items()})
        if self._settings.scheduled:
            self.fetch()
        self._known = [self._numbers(group) for group in self.param_groups]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group; refused once the optimizer has been made."""
        if self._engine is not None:
            raise libds.StateError(libds.Status.STATE, "add_param_group comes after the optimizer was made: pass all groups to it")
        super().add_param_group(param_group)

    def _numbers(self, group: dict[str, Any]) -> dict[str, float]:
        """Returns the numbers of a group under the engine's names."""
        made = {}
        for name in self._settings.numbers:
            if name == "betas" and name in group:
                made["beta1"], made["beta2"] = (float(beta) for beta in group[name])
            elif name in group:
                made[name] = float(group[name])
        return made

    def send(self) -> None:
        """Gives the engine the numbers that were changed. All ranks must have changed them alike."""
        for at, group in enumerate(self.param_groups):
            now = self._numbers(group)
            for name, value in now.items():
                if value != self._known[at].get(name):
                    self._engine[f"param_groups[{at}].{name}"] = value
            self._known[at] = now

    def fetch(self) -> None:
        """Shows the rates that the engine's schedule has for the next update, unless a program has set others."""
        for at, group in enumerate(self.param_groups):
            group["lr"] = self._engine[f"param_groups[{at}].lr"]
            if "betas" in group and "betas" in self._settings.numbers:
                group["betas"] = (self._engine[f"param_groups[{at}].beta1"], self._engine[f"param_groups[{at}].beta2"])

    def stepped(self) -> None:
        """Called after an update."""
        for one in (self, self.client):
            if one is not None:
                one._opt_called = True  # torch's schedulers warn otherwise
        if self._settings.scheduled:
            self.fetch()
            self._known = [self._numbers(group) for group in self.param_groups]

    def loaded(self, groups: Sequence[dict[str, Any]]) -> None:
        """Called after a checkpoint with these groups was loaded. The engine restores a schedule of its own."""
        if self._settings.scheduled:
            self.fetch()
            self._known = [self._numbers(group) for group in self.param_groups]
            return
        if len(groups) == len(self.param_groups):
            self.load_state_dict({"param_groups": groups})
        self._known = [{} for _ in self.param_groups]

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Makes the engine's step, as `engine.step()` does."""
        loss = None if closure is None else closure()
        self._take_step()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Does nothing: gradients go to the engine when they are complete."""

    @property
    def overflow(self) -> bool:
        """Whether the last step was skipped because its gradients were not finite."""
        return self._engine.last_step.skipped

    @property
    def cur_scale(self) -> float:
        """The loss scale of the next step; 1 unless fp16 is enabled."""
        return self._engine["loss_scale"]

    loss_scale = cur_scale

    def state_dict(self) -> dict[str, Any]:
        """Returns the numbers of the groups. Masters and moments are in checkpoints of the engine."""
        return {"state": {}, "param_groups": [{name: value for name, value in group.items() if name != "params"} for group in self.param_groups]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over the numbers of the groups."""
        if len(state["param_groups"]) != len(self.param_groups):
            raise libds.errors.refuse(f"state_dict must have {len(self.param_groups)} groups, got {len(state['param_groups'])}")
        for group, saved in zip(self.param_groups, state["param_groups"]):
            group.update({name: value for name, value in saved.items() if name != "params"})


class Scheduler:
    """The learning rates of the configuration's section `scheduler`, which the engine changes with each update."""

    def __init__(self, optimizer: EngineOptimizer, engine: Any) -> None:
        self.optimizer = optimizer
        self._engine = engine

    def step(self, *arguments: Any, **options: Any) -> None:
        """Does nothing: the engine's step has changed the rates."""

    def get_last_lr(self) -> list[float]:
        """Returns the rate of each group for the next update."""
        return [group["lr"] for group in self.optimizer.param_groups]

    get_lr = get_last_lr

    def state_dict(self) -> dict[str, Any]:
        """Returns the number of updates. The engine's checkpoints contain what the rates depend on."""
        return {"last_batch_iteration": int(self._engine["updates"]) - 1}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Does nothing: loading a checkpoint of the engine has set the rates."""
