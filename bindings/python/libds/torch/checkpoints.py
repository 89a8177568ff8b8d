"""What a checkpoint has besides parameters and states: counters, buffers, schedulers, random states and the client's state.

Numbers, texts and their containers are JSON in the client state of the engine's checkpoint, and tensors are attachments of rank 0, so
nothing is unpickled when a checkpoint is loaded.
"""
from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from typing import Any

import torch

import libds

__all__ = ["save", "load"]

_TENSOR, _TUPLE, _ITEMS, _FLOAT = "__tensor__", "__tuple__", "__items__", "__float__"


class _Packer:
    """Makes JSON of values, and collects their tensors by name."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}

    def pack(self, value: Any, name: str) -> Any:
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {_FLOAT: str(value)}
        if isinstance(value, torch.Tensor):
            return self._tensor(value, name)
        if type(value).__module__ == "numpy":
            return self.pack(torch.as_tensor(value) if getattr(value, "shape", ()) else value.item(), name)
        if isinstance(value, (list, tuple)):
            items = [self.pack(item, f"{name}[{at}]") for at, item in enumerate(value)]
            return items if isinstance(value, list) else {_TUPLE: items}
        if isinstance(value, Mapping):
            if all(isinstance(key, str) and not key.startswith("__") for key in value):
                return {key: self.pack(item, f"{name}.{key}") for key, item in value.items()}
            return {_ITEMS: [[self.pack(key, name), self.pack(item, f"{name}[{key!r}]")] for key, item in value.items()]}
        raise libds.errors.refuse(f"{name} must be numbers, texts, lists, dictionaries and tensors, got {type(value).__name__}")

    def _tensor(self, tensor: torch.Tensor, name: str) -> dict[str, Any]:
        if tensor.numel():
            self.tensors[name] = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        return {_TENSOR: name, "dtype": str(tensor.dtype).rpartition(".")[2], "shape": list(tensor.shape)}


def _unpack(value: Any, engine: libds.DelegateEngine) -> Any:
    if isinstance(value, list):
        return [_unpack(item, engine) for item in value]
    if not isinstance(value, dict):
        return value
    if _TENSOR in value:
        dtype = getattr(torch, value["dtype"])
        if 0 in value["shape"]:
            return torch.empty(value["shape"], dtype=dtype)
        return torch.from_dlpack(engine.attachment(value[_TENSOR])).clone().view(dtype).reshape(value["shape"])
    if _TUPLE in value:
        return tuple(_unpack(item, engine) for item in value[_TUPLE])
    if _FLOAT in value:
        return float(value[_FLOAT])
    if _ITEMS in value:
        return {_unpack(key, engine): _unpack(item, engine) for key, item in value[_ITEMS]}
    return {key: _unpack(item, engine) for key, item in value.items()}


def save(engine: libds.DelegateEngine, comm: libds.Comm, folder: str, state: Mapping[str, Any]) -> None:
    """Saves a checkpoint with the `state` of rank 0 and the random states of all ranks. Collective."""
    packer = _Packer()
    text = packer.pack(state, "state")
    if comm.rank == 0:
        for name, tensor in packer.tensors.items():
            engine.attach(name, tensor)
    engine.attach("random.torch", torch.get_rng_state())
    engine.attach("random.python", torch.tensor(list(json.dumps(random.getstate()).encode()), dtype=torch.uint8))
    engine.save(folder, client_state={"libds.torch": 1, "ranks": comm.size, "state": text}, keep=1)


def load(engine: libds.DelegateEngine, comm: libds.Comm, folder: str) -> Any:
    """Loads a checkpoint; returns the state of `save`, or None if `save` did not make it. A rank continues its random numbers if it had
    some when the checkpoint was saved. Collective."""
    loaded = engine.load(folder)
    if not isinstance(loaded, dict) or "libds.torch" not in loaded:
        return None
    if comm.rank < loaded["ranks"]:
        torch.set_rng_state(torch.from_dlpack(engine.attachment("random.torch", comm.rank)).clone())
        version, numbers, gauss = json.loads(bytes(engine.attachment("random.python", comm.rank).tolist()))
        random.setstate((version, tuple(numbers), gauss))
    return _unpack(loaded["state"], engine)
