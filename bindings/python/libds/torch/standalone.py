"""An optimizer for plain loops of torch, whose states lie in memory or on NVMe."""
from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any

import torch

import libds

from .optimizers import EngineOptimizer
from .parameters import Held, Parameters, lent
from .settings import CLIENT_OPTIMIZERS, Settings

__all__ = ["Optimizer"]

_KINDS = {kind.__name__: kind for kind in CLIENT_OPTIMIZERS}


class Optimizer(EngineOptimizer):
    """Adam, AdamW, SGD or Adagrad as libds computes them, in place of the optimizer of torch with this name. For one process.

    The arguments besides those below are those of torch's optimizer, with its defaults. The parameters are the memory of an engine
    as long as it is not destroyed; they keep the addresses that they have after the constructor. Parameters in bfloat16 get masters
    in float32. A parameter without a gradient is left alone, as torch does. A step whose gradients are not finite changes nothing.

    Args:
        params: parameters, or groups of them. All have one type, float32 or bfloat16.
        name: "AdamW", "Adam", "SGD" or "Adagrad".
        device: where the states lie: "cpu" or "nvme".
        nvme_path: a folder for "nvme".
    """

    def __init__(self, params: Any, name: str = "AdamW", device: str = "cpu", nvme_path: str | os.PathLike[str] | None = None,
                 **parameters: Any) -> None:
        for key, value, known in (("name", name, list(_KINDS)), ("device", device, ["cpu", "nvme"])):
            if value not in known:
                raise libds.errors.refuse(f"{key} must be one of {', '.join(known)}, got {value!r}")
        if (device == "nvme") != (nvme_path is not None):
            needed = "a folder" if device == "nvme" else "None"
            raise libds.errors.refuse(f"nvme_path must be {needed} if device is {device!r}, got {nvme_path!r}")
        client = _KINDS[name](params, **parameters)
        members = [param for group in client.param_groups for param in group["params"]]
        dtype = members[0].dtype
        for param in members:
            if param.dtype != dtype or dtype not in (torch.float32, torch.bfloat16):
                raise libds.errors.refuse(f"params must all be float32 or all be bfloat16, got {dtype} and {param.dtype}")
        offload = {} if nvme_path is None else {"offload_optimizer": {"device": device, "nvme_path": os.fspath(nvme_path)}}
        settings = Settings({"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0, "missing_gradients": "skip",
                             "bf16": {"enabled": dtype is torch.bfloat16}, "zero_optimization": {"stage": 0, **offload}}, 1)
        settings.take_optimizer(client)
        super().__init__(client.param_groups, settings, None, self.step)
        self._scratch = nvme_path
        self._held = held = Parameters(((f"params.{at}", param, None, "") for at, param in enumerate(members)), dtype)
        held.choose(members, [])
        held.start(settings.for_engine([one.name for one in held.all if not one.trained], client.param_groups[0]))
        held.selected = frozenset(one.number for one in held.all)
        #: The number of updates of each parameter, which its bias correction counts.
        self._updates = {one.number: 0 for one in held.all}
        self.begin(held)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates the parameters from their `grad`; returns the result of the closure."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._held.take_edits()
        ready = [held for held in self._held.all if held.param.grad is not None]
        if not ready:
            return loss
        self.send()
        self._engine._call(libds.lowlevel.grads_ready, ([held.number for held in ready], [lent(held.param.grad) for held in ready]))
        self._engine.backward()
        if not self._engine.step().skipped:
            for held in ready:
                self._updates[held.number] += 1
        self.stepped()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Removes the gradients of all parameters, or fills them with zeros."""
        torch.optim.Optimizer.zero_grad(self, set_to_none)

    def _states(self) -> list[str]:
        names = [name for name in self._engine.state_names if name not in ("param", "grad", "master")]
        return names if self._held.dtype is torch.float32 else ["master", *names]

    def _indexed(self) -> dict[int, Held]:
        """Returns the parameters by torch's numbers in a state_dict."""
        by_id = {id(held.param): held for held in self._held.all}
        members = [param for group in self.param_groups for param in group["params"]]
        return {at: by_id[id(param)] for at, param in enumerate(members) if id(param) in by_id}

    def state_dict(self) -> dict[str, Any]:
        """Returns numbers and states as torch's optimizer does, so that either loads what the other has saved."""
        self._held.take_edits()
        state: dict[int, dict[str, Any]] = {}
        for at, held in self._indexed().items():
            if self._updates[held.number]:
                values = {name: torch.empty(held.param.shape) for name in self._states()}
                for name, value in values.items():
                    self._engine.read(held.number, name, out=value.view(-1))
                state[at] = {"step": torch.tensor(float(self._updates[held.number])), **values}
        groups = super().state_dict()["param_groups"]
        first = 0
        for group, mine in zip(groups, self.param_groups):
            group["params"] = list(range(first, first + len(mine["params"])))
            first += len(mine["params"])
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over the numbers and states of `state_dict`, also of torch's optimizer."""
        sizes = [len(group["params"]) for group in state_dict["param_groups"]]
        mine = [len(group["params"]) for group in self.param_groups]
        if sizes != mine:
            raise libds.errors.refuse(f"state_dict must have groups of {mine} parameters, got {sizes}")
        self._held.take_edits()
        states = state_dict["state"]
        for at, held in self._indexed().items():
            for name in self._states():
                value = states.get(at, {}).get(name)
                if value is not None and value.numel() != held.param.numel():
                    raise libds.errors.refuse(f"{name} of parameter {at} must have {held.param.numel()} elements, got {value.numel()}")
        super().load_state_dict(state_dict)
        with tempfile.TemporaryDirectory(dir=self._scratch) as folder:
            self._write(os.path.join(folder, "universal"), states)
            libds.convert_checkpoint(os.path.join(folder, "universal"), os.path.join(folder, "states"))
            self._engine.load(os.path.join(folder, "states"))
        self._held.loaded()
        self.loaded([])

    def _write(self, folder: str, states: dict[int, dict[str, Any]]) -> None:
        """Writes states as DeepSpeed's universal layout, because no call of the engine sets the numbers of updates."""
        os.makedirs(os.path.join(folder, "zero"))
        shapes = {}
        for at, held in self._indexed().items():
            state = states.get(at, {})
            place = os.path.join(folder, "zero", held.name)
            os.mkdir(place)
            shapes[held.name] = tuple(held.dims)
            for name in ["master", *(name for name in self._states() if name != "master")]:
                value = state.get(name)
                if value is None and name == "master":
                    value = self._engine.read(held.number, name, out=torch.empty(held.param.numel()))
                elif value is None:
                    value = torch.zeros(held.param.numel())
                file = "fp32" if name == "master" else name
                torch.save(value.detach().float().reshape(-1).clone(), os.path.join(place, f"{file}.pt"))
            updates = self._updates[held.number] = int(state.get("step", 0))
            torch.save(updates, os.path.join(place, "step.pt"))
        torch.save({"global_steps": max(self._updates.values()), "skipped_steps": 0, "param_shapes": [shapes]},
                   os.path.join(folder, "mp_rank_00_model_states.pt"))

    def destroy(self) -> None:
        """Frees the engine's memory; the parameters keep their values. May be called repeatedly."""
        if not self._engine.closed:
            self._held.end()
            self._engine.close()
