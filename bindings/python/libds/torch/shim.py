"""The modules and names of DeepSpeed that other programs import, provided by this package.

A finder at the head of `sys.meta_path` answers `import deepspeed` and `importlib.metadata.version("deepspeed")`, in this process only.
Nothing is installed, and a real DeepSpeed is never hidden.
"""
from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import logging
import os
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch

import libds
import libds.torch

from . import states, zero
from .engine import Engine

__all__ = ["Finder", "install", "VERSION"]

#: The release of DeepSpeed whose names these are.
VERSION = "0.19.8"

_logger = logging.getLogger("libds.torch")


class CPUAdam(torch.optim.Adam):
    """DeepSpeed's Adam: decoupled weight decay unless `adamw_mode` is false."""

    def __init__(self, model_params: Any, lr: float = 1e-3, bias_correction: bool = True, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 0, amsgrad: bool = False, adamw_mode: bool = True, **_: Any) -> None:
        if not bias_correction:
            raise libds.errors.refuse("bias_correction must be True, got False")
        super().__init__(model_params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, decoupled_weight_decay=adamw_mode)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = adamw_mode


class FusedAdam(CPUAdam):
    """DeepSpeed's Adam with the argument `adam_w_mode`."""

    def __init__(self, params: Any, *arguments: Any, adam_w_mode: bool = True, **options: Any) -> None:
        super().__init__(params, *arguments, adamw_mode=adam_w_mode, **options)


class _Accelerator:
    """The functions of DeepSpeed's accelerator that programs call on a CPU."""

    def device_name(self, device_index: int | None = None) -> str:
        return "cpu"

    current_device_name = device_name

    def communication_backend_name(self) -> str:
        return "gloo"

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))

    def current_device(self) -> int:
        return int(os.environ.get("LOCAL_RANK", "0"))

    def set_device(self, device_index: int) -> None:
        """Does nothing: there is one device."""

    def synchronize(self, device_index: int | None = None) -> None:
        """Does nothing: work on a CPU has ended when its call returns."""

    def empty_cache(self) -> None:
        """Does nothing: a CPU has no cache of freed memory."""

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def is_bf16_supported(self) -> bool:
        return True


def _clone(item: Any, device: Any = torch.device("cpu")) -> Any:
    """Copies the tensors of a state, so that torch.save writes their own elements only."""
    if isinstance(item, torch.Tensor):
        return item.detach().clone().to(device)
    if isinstance(item, (list, tuple)):
        return type(item)(_clone(one, device) for one in item)
    return type(item)({key: _clone(one, device) for key, one in item.items()}) if isinstance(item, dict) else item


def _log_dist(message: str, ranks: Any = None, level: int = logging.INFO) -> None:
    if not ranks or -1 in ranks or libds.torch.communicator().rank in ranks:
        _logger.log(level, "%s", message)


def _tree() -> dict[str, dict[str, Any]]:
    """Returns the names of each module."""
    zeros = {"Init": zero.Init, "GatheredParameters": zero.GatheredParameters, "ZeroParamStatus": zero.ZeroParamStatus,
             "register_external_parameter": zero.register_external_parameter,
             "unregister_external_parameter": zero.unregister_external_parameter}
    full = {name: getattr(states, name) for name in states.__all__ if name != "UNIT"}
    accelerator = _Accelerator()
    return {
        "": {"initialize": libds.torch.initialize, "add_config_arguments": libds.torch.add_config_arguments,
             "init_distributed": libds.torch.init_distributed, "DeepSpeedEngine": Engine, "__version__": VERSION, "version": VERSION},
        "comm": {"init_distributed": libds.torch.init_distributed},
        "zero": zeros,
        "runtime": {}, "runtime.zero": zeros, "runtime.engine": {"DeepSpeedEngine": Engine},
        # Transformers replaces this function while zero.Init is active; nothing of ours calls it.
        "runtime.zero.partition_parameters": {**zeros, "zero_wrapper_for_fp_tensor_constructor": lambda fn, *_: fn, "_orig_torch_arange": torch.arange},
        "runtime.lr_schedules": {"VALID_LR_SCHEDULES": ["LRRangeTest", "OneCycle", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR"]},
        "ops": {}, "ops.adam": {"DeepSpeedCPUAdam": CPUAdam, "FusedAdam": FusedAdam},
        "ops.adagrad": {"DeepSpeedCPUAdagrad": torch.optim.Adagrad},
        "utils": {"logger": _logger, "log_dist": _log_dist, **full}, "utils.logging": {"logger": _logger, "log_dist": _log_dist},
        "checkpoint": {}, "checkpoint.utils": {"clone_tensors_for_torch_save": _clone},
        "accelerator": {"get_accelerator": lambda: accelerator},
        "launcher": {}, "launcher.runner": {"DEEPSPEED_ENVIRONMENT_NAME": ".deepspeed_env"},
    }


def _missing(module: str, name: str) -> AttributeError:
    return AttributeError(f"{module}.{name} is not part of libds.torch: docs/guides/torch.md lists its names, and what libds has instead")


class _Loader(importlib.abc.Loader):
    """Fills a module with its names."""

    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names

    def exec_module(self, module: types.ModuleType) -> None:
        vars(module).update(self._names)
        module.__doc__ = "Names of DeepSpeed, made by libds.torch."

        def get(name: str) -> Any:
            if module.__name__ == "deepspeed.comm" and hasattr(torch.distributed, name):
                return getattr(torch.distributed, name)
            if not name.startswith("__") and f"{module.__name__}.{name}" in Finder.names():
                return importlib.import_module(f"{module.__name__}.{name}")
            raise _missing(module.__name__, name)

        vars(module)["__getattr__"] = get


class _Patching(importlib.abc.Loader):
    """Loads a module with its own loader and then changes it."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        self._loader.exec_module(module)
        _say_gloo(module)


class Finder(importlib.metadata.DistributionFinder, importlib.abc.MetaPathFinder):
    """Finds the modules of the shim, and the distribution that they would belong to."""

    _tree: dict[str, dict[str, Any]] | None = None

    @classmethod
    def names(cls) -> dict[str, dict[str, Any]]:
        if cls._tree is None:
            cls._tree = {f"deepspeed.{name}".rstrip("."): members for name, members in _tree().items()}
        return cls._tree

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if fullname == "accelerate.state":
            spec = importlib.machinery.PathFinder.find_spec(fullname, path)
            if spec is not None:
                spec.loader = _Patching(spec.loader)
            return spec
        if fullname != "deepspeed" and not fullname.startswith("deepspeed."):
            return None
        if fullname not in self.names():
            raise ModuleNotFoundError(str(_missing(*fullname.rsplit(".", 1))), name=fullname)
        return importlib.machinery.ModuleSpec(fullname, _Loader(self.names()[fullname]), is_package=True, origin=__file__)

    def find_distributions(self, context: Any = importlib.metadata.DistributionFinder.Context()) -> Iterator[importlib.metadata.Distribution]:
        if context.name is None or context.name.lower() == "deepspeed":
            yield _Distribution()


class _Distribution(importlib.metadata.Distribution):
    """The metadata of the shim."""

    def read_text(self, filename: str) -> str | None:
        if filename != "METADATA":
            return None
        return f"Metadata-Version: 2.1\nName: deepspeed\nVersion: {VERSION}\nSummary: names of DeepSpeed, made by libds.torch\n"

    def locate_file(self, path: Any) -> Any:
        return os.path.join(os.path.dirname(__file__), path)


def _say_gloo(state: types.ModuleType) -> None:
    """Makes Accelerate use gloo. Without an accelerator it gives DeepSpeed no backend, and so only one process."""
    prepare = state.PartialState._prepare_backend

    def prepare_backend(self: Any, *arguments: Any, **options: Any) -> Any:
        backend, kind = prepare(self, *arguments, **options)
        if backend is None and os.environ.get("ACCELERATE_USE_DEEPSPEED", "false").lower() == "true" and "LOCAL_RANK" in os.environ:
            backend = "gloo"
        return backend, kind

    state.PartialState._prepare_backend = prepare_backend


def install() -> None:
    """Puts the finder before all others. Refused if DeepSpeed itself is installed or imported."""
    if any(isinstance(finder, Finder) for finder in sys.meta_path):
        return
    before = list(sys.meta_path)
    sys.meta_path[:] = [finder for finder in before if type(finder).__module__ != "_libds_start"]  # it would find this finder
    spec = None if "deepspeed" in sys.modules else importlib.util.find_spec("deepspeed")
    if "deepspeed" in sys.modules or (spec is not None and spec.origin is not None):  # a folder of that name has no origin
        sys.meta_path[:] = before
        raise libds.StateError(libds.Status.STATE, "DeepSpeed itself is installed: uninstall it, or use an environment without it, to train with libds "
                               "under its name")
    sys.meta_path.insert(0, Finder())
    if "accelerate.state" in sys.modules:
        _say_gloo(sys.modules["accelerate.state"])
