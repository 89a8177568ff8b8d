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
import operator
import os
import random
import resource
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.utils.checkpoint
from torch.utils._pytree import tree_map

import libds
import libds.torch

from . import states, zero
from .engine import Engine
from .optimizers import EngineOptimizer

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

    _name = "cpu"

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

    is_fp16_supported = is_bf16_supported

    def memory_allocated(self, device_index: int | None = None) -> int:
        """Returns the resident memory of this process."""
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()

    def max_memory_allocated(self, device_index: int | None = None) -> int:
        """Returns the largest resident memory that this process has had."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def reset_peak_memory_stats(self, device_index: int | None = None) -> None:
        """Does nothing: the peak of a process cannot be reset."""

    def total_memory(self, device_index: int | None = None) -> int:
        """Returns the memory of the host."""
        return os.sysconf("SC_PHYS_PAGES") * resource.getpagesize()


class RepeatingLoader:
    """Yields the batches of a loader again and again."""

    def __init__(self, loader: Iterable[Any]) -> None:
        self.loader = loader
        self._batches = iter(loader)

    def __iter__(self) -> RepeatingLoader:
        return self

    def __next__(self) -> Any:
        try:
            return next(self._batches)
        except StopIteration:
            self._batches = iter(self.loader)
            return next(self._batches)


def _configure_checkpointing(mpu_: Any = None, deepspeed_config: Any = None, **options: Any) -> None:
    """Accepts activation checkpointing as torch has it."""
    for name, value in options.items():
        if value:
            raise libds.Unsupported(libds.Status.UNSUPPORTED, f"{name} must be False, got {value}: activations are recomputed whole")


def _checkpoint(function: Callable[..., Any], *arguments: Any) -> Any:
    return torch.utils.checkpoint.checkpoint(function, *arguments, use_reentrant=False)


def _move_to_device(item: Any, device: Any, criterion_func: Callable[[Any], bool] | None = None) -> Any:
    def move(one: Any) -> Any:
        return one.to(device) if isinstance(one, torch.Tensor) and (criterion_func is None or criterion_func(one)) else one

    return tree_map(move, item)


def _recursive_setattr(model: torch.nn.Module, module_name: str, module: Any) -> None:
    owner, _, last = module_name.rpartition(".")
    setattr(model.get_submodule(owner), last, module)


def _set_random_seed(seed: int) -> None:
    random.seed(seed)
    torch.manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)


def _see_memory_usage(message: str, force: bool = False) -> None:
    if force:
        accelerator = _Accelerator()
        now, peak = accelerator.memory_allocated() >> 20, accelerator.max_memory_allocated() >> 20
        _log_dist(f"{message}: resident {now} MiB, peak {peak} MiB", [0])


def _clone(item: Any, device: Any = torch.device("cpu")) -> Any:
    """Copies the tensors of a state, so that torch.save writes their own elements only."""
    if isinstance(item, torch.Tensor):
        return item.detach().clone().to(device)
    if isinstance(item, (list, tuple)):
        return type(item)(_clone(one, device) for one in item)
    return type(item)({key: _clone(one, device) for key, one in item.items()}) if isinstance(item, dict) else item


def _init_distributed(*arguments: Any, **options: Any) -> None:
    """Initializes torch.distributed; for a program that no launcher has started, with a group of one rank, because such programs ask
    for their rank."""
    libds.torch.init_distributed(*arguments, **options)
    if not torch.distributed.is_initialized() and options.get("dist_init_required") is not False and libds.torch.communicator().size == 1:
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)


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
    get = {"get_accelerator": lambda: accelerator}
    return {
        "": {"initialize": libds.torch.initialize, "add_config_arguments": libds.torch.add_config_arguments, "DeepSpeedEngine": Engine,
             "init_distributed": _init_distributed, **get, "__version__": VERSION, "version": VERSION},
        "comm": {"init_distributed": _init_distributed, "get_local_rank": lambda: int(os.environ.get("LOCAL_RANK", "0"))},
        "zero": zeros, "checkpointing": {"configure": _configure_checkpointing, "checkpoint": _checkpoint, "is_configured": lambda: True},
        "constants": {"TORCH_DISTRIBUTED_DEFAULT_PORT": 29500},
        "runtime": {}, "runtime.zero": zeros, "runtime.engine": {"DeepSpeedEngine": Engine},
        # Transformers replaces this function while zero.Init is active; nothing of ours calls it.
        "runtime.zero.partition_parameters": {**zeros, **get, "zero_wrapper_for_fp_tensor_constructor": lambda fn, *_: fn,
                                              "_orig_torch_arange": torch.arange},
        "runtime.base_optimizer": {"DeepSpeedOptimizer": EngineOptimizer},
        "runtime.config": {"LAMB_OPTIMIZER": "lamb", "ONEBIT_LAMB_OPTIMIZER": "onebitlamb"},
        "runtime.lr_schedules": {"VALID_LR_SCHEDULES": ["LRRangeTest", "OneCycle", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR"]},
        "runtime.utils": {"set_random_seed": _set_random_seed, "see_memory_usage": _see_memory_usage, "move_to_device": _move_to_device},
        "ops": {}, "ops.adam": {"DeepSpeedCPUAdam": CPUAdam, "FusedAdam": FusedAdam},
        "ops.adagrad": {"DeepSpeedCPUAdagrad": torch.optim.Adagrad},
        "utils": {"logger": _logger, "log_dist": _log_dist, "RepeatingLoader": RepeatingLoader, **full},
        "utils.logging": {"logger": _logger, "log_dist": _log_dist},
        "compression": {},
        "compression.helper": {"recursive_getattr": lambda model, name: operator.attrgetter(name)(model), "recursive_setattr": _recursive_setattr},
        "checkpoint": {}, "checkpoint.utils": {"clone_tensors_for_torch_save": _clone},
        "accelerator": get, "launcher": {}, "launcher.runner": {"DEEPSPEED_ENVIRONMENT_NAME": ".deepspeed_env"},
    }


# The alternatives in libds to names that the shim lacks, by the beginnings of these names.
_INSTEAD = {
    "init_inference inference module_inject replace_transformer_layer": "libds generate runs models",
    "OnDevice": "torch.device('meta') constructs a module without memory",
    "DeepSpeedConfig": "libds.describe_config reads a configuration",
    "comm constants utils.is_initialized": "deepspeed.comm has the functions of torch.distributed",
    "ops.lion": 'the type "Lion" of the section optimizer has this update',
    "utils.zero_to_fp32": "engine.save_16bit_model writes whole weights, and libds convert makes them of a checkpoint",
    "utils.groups runtime.sequence_parallel sequence tp_model_init pipe moe runtime.domino": "libds.torch has data parallelism only",
    "runtime.fp16": "with fp16 the optimizer that initialize returns has the loss scale",
    "runtime.zero.offload_config": "states stay on the tier of the configuration",
    "io ops.op_builder": "offload to nvme and checkpoints do this by themselves",
    "DeepSpeedTransformerLayer DeepSpeedTransformerConfig ops.sparse_attention": "the modules of torch are trained as they are",
    "compile": "engine.compile and torch.compile compile a module",
    "compression": "the section compression_training must be off",
    "runtime.data_pipeline": "libds.torch takes batches from the program's own loader",
}


def _missing(module: str, name: str) -> AttributeError:
    full = f"{module}.{name}".removeprefix("deepspeed.")
    way = next((text for starts, text in _INSTEAD.items() if any(f"{full}.".startswith(f"{start}.") for start in starts.split())), None)
    return AttributeError(f"deepspeed.{full} is not part of libds.torch{f': {way}' if way else ''}; its names are in "
                          "docs/guides/moving-from-deepspeed.md")


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
    """Makes Accelerate use gloo. Without an accelerator it gives DeepSpeed no backend, and so only one process. A program that no launcher
    has started gets the environment of a group of one rank, which the Trainer needs."""
    prepare = state.PartialState._prepare_backend

    def prepare_backend(self: Any, *arguments: Any, **options: Any) -> Any:
        backend, kind = prepare(self, *arguments, **options)
        if backend is None and os.environ.get("ACCELERATE_USE_DEEPSPEED", "false").lower() == "true":
            if "LOCAL_RANK" not in os.environ and libds.torch.communicator().size == 1:
                os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(libds.torch.free_port()))
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
