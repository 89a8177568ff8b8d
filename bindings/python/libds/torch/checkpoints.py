"""What a checkpoint has besides parameters and states: counters, buffers, schedulers, random states and the client's state.

Numbers, texts and their containers are JSON in the client state of the engine's checkpoint, and tensors are attachments of rank 0, so
nothing is unpickled when a checkpoint is loaded.
"""
from __future__ import annotations

import contextlib
import json
import math
import mmap
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

import libds

from .parameters import Parameters

__all__ = ["save", "load", "load_module", "opened"]

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


def _unpack(value: Any, attachment: Callable[[str], torch.Tensor]) -> Any:
    if isinstance(value, list):
        return [_unpack(item, attachment) for item in value]
    if not isinstance(value, dict):
        return value
    if _TENSOR in value:
        dtype = getattr(torch, value["dtype"])
        if 0 in value["shape"]:
            return torch.empty(value["shape"], dtype=dtype)
        return attachment(value[_TENSOR]).clone().view(dtype).reshape(value["shape"])
    if _TUPLE in value:
        return tuple(_unpack(item, attachment) for item in value[_TUPLE])
    if _FLOAT in value:
        return float(value[_FLOAT])
    if _ITEMS in value:
        return {_unpack(key, attachment): _unpack(item, attachment) for key, item in value[_ITEMS]}
    return {key: _unpack(item, attachment) for key, item in value.items()}


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


#: What DeepSpeed itself keeps in a checkpoint. The rest is the client's state.
_DEEPSPEED = {
    "module", "buffer_names", "optimizer", "param_shapes", "frozen_param_shapes", "frozen_param_fragments", "shared_params", "lr_scheduler",
    "data_sampler", "random_ltd", "sparse_tensor_module_names", "skipped_steps", "global_steps", "global_samples", "dp_world_size",
    "mp_world_size", "ds_config", "ds_version", "loss_scaler", "dynamic_loss_scale", "overflow", "clip_grad", "param_groups"}


def load(engine: libds.DelegateEngine, comm: libds.Comm, folder: str) -> dict[str, Any]:
    """Loads a checkpoint; returns the state of `save`, or as much of it as another program has saved. A rank continues its random
    numbers if it had some when the checkpoint was saved. Collective."""
    loaded = engine.load(folder)
    loaded = loaded if isinstance(loaded, dict) else {}
    if "libds.torch" not in loaded:
        steps, updates = int(engine["step"]), int(engine["updates"])
        return {**_foreign(loaded), "counters": [steps, steps - updates, None]}
    if comm.rank < loaded["ranks"]:
        torch.set_rng_state(torch.from_dlpack(engine.attachment("random.torch", comm.rank)).clone())
        version, numbers, gauss = json.loads(bytes(engine.attachment("random.python", comm.rank).tolist()))
        random.setstate((version, tuple(numbers), gauss))
    return _unpack(loaded["state"], lambda name: torch.from_dlpack(engine.attachment(name)))


def _foreign(loaded: Mapping[str, Any]) -> dict[str, Any]:
    rest = loaded.get("deepspeed") or {}
    client = {key: value for key, value in rest.items() if key not in _DEEPSPEED}
    return {"client": client, "buffers": {}, "scheduler": rest.get("lr_scheduler"), "groups": []}


def load_module(parameters: Parameters, comm: libds.Comm, folder: str, strict: bool) -> dict[str, Any]:
    """Loads the masters of a checkpoint, of which each rank reads its own part; returns the state of `save`. Optimizer states and
    counters stay as they are. Collective."""
    path = _from_rank_0(comm, lambda: libds.checkpoint_info(folder)["path"])
    masters = _tensors(os.path.join(path, "master.safetensors"))
    missing = [held.name for held in parameters.all if held.name not in masters]
    if strict and (missing or len(masters) > len(parameters.all)):
        known = {held.name for held in parameters.all}
        raise libds.errors.refuse("load_module_strict: the checkpoint must have the parameters of the module, it lacks "
                                  f"{missing} and has besides {[name for name in masters if name not in known]}")
    for held in parameters.all:
        if held.name in masters:
            if masters[held.name].numel() != held.param.numel():
                raise libds.errors.refuse(f"parameter '{held.name}' must have shape {tuple(held.param.shape)} in the checkpoint, got "
                                          f"{tuple(masters[held.name].shape)}")
    parameters.write([(held, masters[held.name].view(held.param.shape)) for held in parameters.all if held.name in masters])
    parameters.refresh()
    with open(os.path.join(path, "manifest.json"), encoding="utf-8") as file:
        client = json.load(file).get("client")
    client = client if isinstance(client, dict) else {}
    if "libds.torch" not in client:
        return _foreign(client)
    attached = _tensors(os.path.join(path, "attached-00000.safetensors"))
    return _unpack(client["state"], attached.__getitem__)


def _tensors(path: str) -> dict[str, torch.Tensor]:
    """Returns the tensors of a file of safetensors, which is read when they are."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    types = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
             "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool}
    made = {}
    for name, entry in header.items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            dtype = types[entry["dtype"]]
            count = (last - first) // dtype.itemsize
            values = torch.frombuffer(data, dtype=dtype, count=count, offset=8 + size + first) if count else torch.empty(0, dtype=dtype)
            made[name] = values.view(entry["shape"])
    return made


def _from_rank_0(comm: libds.Comm, call: Callable[[], str]) -> str:
    """Returns the text that `call` gives on rank 0; an exception there is raised on all ranks. Collective."""
    text, failure = "", None
    if comm.rank == 0:
        try:
            text = call()
        except (libds.Error, OSError) as error:
            failure = error
    if comm.size > 1:
        told = torch.zeros(4097, dtype=torch.uint8)
        coded = (str(failure) if failure else text).encode()[:4096]
        if comm.rank == 0:
            told[0] = failure is not None
            told[1:1 + len(coded)] = torch.frombuffer(bytearray(coded), dtype=torch.uint8) if coded else 0
        comm.broadcast(told)
        text = bytes(told[1:].tolist()).rstrip(b"\0").decode(errors="replace")
        if told[0] and failure is None:
            failure = libds.StateError(libds.Status.STATE, f"rank 0: {text}")
    if failure is not None:
        raise failure
    return text


@contextlib.contextmanager
def opened(comm: libds.Comm, folder: str, buffers: bool) -> Iterator[tuple[str, dict[str, torch.Tensor]]]:
    """Yields the folder of a checkpoint of libds, and buffers that it does not have: `folder` itself, or a temporary one next to it,
    into which rank 0 converts a checkpoint of DeepSpeed. Collective."""
    if not _of_deepspeed(folder):
        yield folder, {}
        return

    def convert() -> str:
        scratch = tempfile.mkdtemp(prefix=".libds-", dir=os.path.dirname(os.path.abspath(folder)))
        libds.convert_checkpoint(folder, os.path.join(scratch, "states"))
        if buffers:
            libds.convert_checkpoint(folder, os.path.join(scratch, "module"), to="fp32", file_bytes=1 << 60)
        return scratch

    scratch = _from_rank_0(comm, convert)
    try:
        yield os.path.join(scratch, "states"), _tensors(os.path.join(scratch, "module", "model.safetensors")) if buffers else {}
    finally:
        comm.barrier()
        if comm.rank == 0:
            shutil.rmtree(scratch, ignore_errors=True)


def _of_deepspeed(folder: str) -> bool:
    return any(name.endswith("_model_states.pt") for name in os.listdir(folder))
