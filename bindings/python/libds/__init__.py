"""libds trains large models: engines with ZeRO and offload, graphs, collectives, whole runs.

The pieces:

- `Engine` trains a `Graph`; `DelegateEngine` serves a host with its own forward and backward.
- `Comm` is a group of ranks with its collectives; `Work` is a collective that was started.
- `Tensor` shares memory with NumPy, torch and buffers; `tensor` and `zeros` create one.
- `train`, `generate`, `verify`, `profile` and `audit` are the commands of `libds` as functions.
- `libds.torch`, which is imported separately and needs PyTorch, trains modules of torch with DeepSpeed's calls.
- `Monitors` sends an engine's numbers to Weights & Biases and Comet; `train` does so by itself.
- `Plan` shows what a step will do and how much memory it needs. `merge_config`, `describe_config`, `env_report` and `checkpoint_info` are small helpers.
- Every error is an `Error`, with a subclass for each status.

- `ops` has a function for each operation of a graph.
- `libds.jax`, a module to be imported by itself, has an optimizer for programs of JAX.

`libds.lowlevel` has the plain calls of ds.h. The guide is docs/start/python.md.
"""
from . import lowlevel, ops
from .comm import Comm, Work
from .engine import DelegateEngine, Elements, Engine, Lease, Param, StepResult
from .errors import (CommError, ConfigError, CorruptError, Error, FileError, InternalError, InvalidArgument, NotFound,
                     NumericError, OutOfMemory, PoisonedError, StateError, Status, Stopped, Unsupported)
from .graph import Graph, Plan, Value
from .monitors import Monitors
from .progress import Display
from .run import (LogLevel, NextLr, Progress, StopFlag, Verdict, audit, checkpoint_info, communicator, convert_checkpoint, describe_config,
                  env_report, generate, merge_config, profile, set_log, train, verify, version)
from .tensor import DTYPES, Tensor, tensor, zeros

__version__ = version()

__all__ = [
    "Comm", "CommError", "ConfigError", "CorruptError", "DTYPES", "DelegateEngine", "Display", "Elements", "Engine", "Error", "FileError",
    "Graph", "InternalError", "InvalidArgument", "Lease", "LogLevel", "Monitors", "NextLr", "NotFound", "NumericError", "OutOfMemory", "Param", "Plan",
    "PoisonedError", "Progress", "StateError", "Status", "StepResult", "StopFlag", "Stopped", "Tensor", "Unsupported", "Value",
    "Verdict", "Work", "audit", "checkpoint_info", "communicator", "convert_checkpoint", "describe_config", "env_report", "generate",
    "lowlevel", "merge_config", "ops", "profile", "set_log", "tensor", "train", "verify", "version", "zeros",
]
