"""Training of PyTorch models with libds: torch runs forward and backward, libds everything between a gradient and the updated parameter.

`initialize` has the arguments and results of DeepSpeed's. The guide is docs/guides/torch.md.
"""
from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Callable, Iterable
from typing import Any

import torch

import libds

from . import zero
from .engine import Engine
from .optimizers import EngineOptimizer, Scheduler
from .settings import Settings
from .standalone import Optimizer

__all__ = ["Engine", "EngineOptimizer", "Optimizer", "Scheduler",
           "add_config_arguments", "as_deepspeed", "init_distributed", "initialize", "zero"]

_comm: libds.Comm | None = None


def communicator() -> libds.Comm:
    """Returns the group of all ranks, which all engines of this process share: that of the launcher's environment, or of
    torch.distributed if it was initialized in another way."""
    global _comm  # pylint: disable=global-statement
    if _comm is None or _comm.closed:
        _comm = _join()
    return _comm


def free_port() -> int:
    """Returns a port of this host that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def _join() -> libds.Comm:
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized() or distributed.get_world_size() == 1:
        return libds.Comm("env")
    rank, size = distributed.get_rank(), distributed.get_world_size()
    # Only libds launch and torchrun leave libds a port; otherwise torch's own store listens at MASTER_PORT.
    launched = "DS_COMM_URL" in os.environ or distributed.is_torchelastic_launched()
    if launched and (os.environ.get("RANK"), os.environ.get("WORLD_SIZE")) == (str(rank), str(size)):
        return libds.Comm("env")
    hosts = [""] * size
    distributed.all_gather_object(hosts, socket.gethostname())
    if len(set(hosts)) == 1:
        name = [f"shm://libds-torch-{os.getpid()}-{os.urandom(6).hex()}"]
    else:
        name = [f"tcp://{hosts[0]}:{free_port()}/{os.urandom(6).hex()}"]
    distributed.broadcast_object_list(name, src=0)
    return libds.Comm(name[0], rank=rank, size=size)


def init_distributed(dist_backend: str | None = None, auto_mpi_discovery: bool = True, distributed_port: int = 29500, verbose: bool = True,
                     timeout: Any = None, init_method: str | None = None, dist_init_required: bool | None = None, config: Any = None,
                     rank: int = -1, world_size: int = -1) -> None:
    """Initializes torch.distributed over gloo, unless it is initialized or the environment names no group of ranks."""
    if torch.distributed.is_initialized() or dist_init_required is False:
        return
    if init_method is None and not all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")):
        return
    options = {} if timeout is None else {"timeout": timeout}
    torch.distributed.init_process_group(dist_backend or "gloo", init_method=init_method, rank=rank, world_size=world_size, **options)


def add_config_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Adds --deepspeed and --deepspeed_config, as DeepSpeed does."""
    group = parser.add_argument_group("libds", "configuration")
    group.add_argument("--deepspeed", default=False, action="store_true", help="train with libds")
    group.add_argument("--deepspeed_config", default=None, type=str, help="the file of the configuration")
    return parser


def initialize(args: Any = None, model: torch.nn.Module | None = None, optimizer: Any = None, model_parameters: Any = None,
               training_data: Any = None, lr_scheduler: Any = None, distributed_port: int = 29500, mpu: Any = None,
               dist_init_required: bool | None = None, collate_fn: Callable[..., Any] | None = None, config: Any = None,
               mesh_param: Any = None, config_params: Any = None) -> tuple[Engine, EngineOptimizer, Any, Any]:
    """Makes an engine for a model; returns (engine, optimizer, loader, scheduler). Collective.

    Args:
        model: a module on the CPU. It is cast to the type of the configuration.
        optimizer: an optimizer of torch, or a callable that makes one from the parameters, in place of the section `optimizer`. It must
            update elements one by one.
        model_parameters: the parameters to train, or groups of them; if it is None or empty, all that require a gradient.
        training_data: a dataset; the loader yields this rank's micro-batches of it.
        lr_scheduler: a scheduler of torch, or a callable that makes one from the optimizer; `engine.step()` steps it.
        collate_fn: the function by which the loader makes a batch of samples.
        config: a dictionary, JSON text or the path of a file; also `config_params`, or `args.deepspeed_config`.
    """
    if not isinstance(model, torch.nn.Module):
        raise libds.errors.refuse(f"model must be a torch.nn.Module, got {type(model).__name__}")
    for name, value in (("mpu", mpu), ("mesh_param", mesh_param)):
        if value is not None:
            raise libds.Unsupported(libds.Status.UNSUPPORTED, f"{name} must be None: libds.torch has data parallelism only")
    init_distributed(dist_init_required=dist_init_required)
    comm = communicator()
    given = next((one for one in (config, config_params, getattr(args, "deepspeed_config", None)) if one is not None), None)
    settings = Settings(given, comm.size)
    parameters = [param for param in model.parameters() if param.requires_grad]
    parameters = list(model_parameters or ()) or parameters
    if callable(optimizer):
        optimizer = optimizer(parameters)
    if optimizer is not None:
        settings.take_optimizer(optimizer)
    if lr_scheduler is not None:
        settings.drop_scheduler()
    engine = Engine(model, settings, comm, _groups(parameters, settings) if optimizer is None else optimizer.param_groups, optimizer)
    if lr_scheduler is not None:
        engine.lr_scheduler = lr_scheduler(engine.optimizer) if callable(lr_scheduler) else lr_scheduler
    if training_data is not None:
        engine.training_dataloader = engine.deepspeed_io(training_data, collate_fn=collate_fn)
    return engine, engine.optimizer, engine.training_dataloader, engine.lr_scheduler


def _groups(parameters: Iterable[Any], settings: Settings) -> list[dict[str, Any]]:
    """Returns the groups with all their numbers. Numbers that a group does not set come from the configuration."""
    given = list(parameters)
    groups = given if given and all(isinstance(one, dict) for one in given) else [{"params": given}]
    return [{**settings.base_group(), **group, "params": list(group["params"])} for group in groups]


def as_deepspeed() -> None:
    """Makes `import deepspeed` import this package, in this process; refused if DeepSpeed itself is installed."""
    from . import shim  # pylint: disable=import-outside-toplevel

    shim.install()
