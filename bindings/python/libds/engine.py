"""Engines: training of a graph, and training for a host that computes gradients itself."""
from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Union

from . import errors, lowlevel
from ._handle import Config, Handle, config_text, options_text, raw_handle
from .comm import Comm, format_code, report
from .graph import Graph
from .tensor import Tensor, inputs_of, raw_of, zeros

__all__ = ["Engine", "DelegateEngine", "Param", "StepResult", "Lease"]

#: Gives initial values of a parameter: (name, first, values), where the memoryview `values` of float32 holds the elements of
#: the flattened parameter from `first` on, and is changed in place.
Init = Callable[[str, int, memoryview], None]


class Param(NamedTuple):
    """A parameter of an engine. Calls that take a parameter also take its name or its number."""

    number: int
    name: str
    shape: tuple[int, ...]


ParamLike = Union[Param, str, int]


class StepResult(NamedTuple):
    """What became of a step."""

    step: int  #: steps made so far, skipped ones included
    updates: int  #: updates of the optimizer so far
    loss: float  #: mean over all ranks
    grad_norm: float  #: of the mean gradient, before clipping
    lr: float  #: of parameter group 0
    skipped: bool  #: loss or gradients had NaN or infinity, and nothing was updated
    loss_scale: float  #: what the loss was multiplied by; 1 unless fp16 is enabled
    loss_scale_at_floor: bool  #: skipped, and the dynamic loss scale is at its minimum


class _AnyEngine(Handle):
    """What both kinds of engine have: parameters, states, numbers, checkpoints and reports.

    `engine["lr"]` is a number by name, and those of ds_engine_set may be changed from the next step on:
    `engine["lr"] = 1e-4`, `engine["param_groups[1].weight_decay"] = 0`. `del engine["lr"]` gives the number back to
    configuration and schedule. See `help(libds.lowlevel.engine_get)` and `engine_set` for the names.
    """

    def _create(self, config: Config, raw_graph: Any, comm: Comm | None, threads: int, trace: bool, init: Init | None) -> None:
        options: Any = lowlevel.engine_options()
        options.threads, options.trace = threads, int(trace)
        if init is not None:
            options.set_init(lambda param, name, first, values: init(name, first, values))
        text = config_text(config)
        if comm is None:
            lock, raw = None, lowlevel.engine_create(None, text, raw_graph, options)
        else:
            raw_comm, lock = raw_handle(comm, Comm, "comm"), comm._lock
            with lock:
                raw = lowlevel.engine_create(raw_comm, text, raw_graph, options)
        self._open(raw, lock)
        self._comm = comm
        # Calls hold the handle, and so what they use, also when another thread or a callback closes this object: delegate
        # mode calls init inside start, and the group lives as long as its engines.
        raw.kept = (options, comm._loans if comm else None)
        self._numbers: dict[str, int] = {}

    def close(self) -> None:
        """Gives back the memory of the engine. May be called again."""
        super().close()
        self._comm = None

    # ------------------------------------------------------------ parameters and states

    def _number(self, param: ParamLike) -> int:
        if isinstance(param, Param):
            return param.number
        if isinstance(param, str):
            index = self._numbers.get(param)
            if index is None:
                index = self._numbers[param] = self._call(lowlevel.engine_param_find, param)
            return index
        if hasattr(param, "__index__"):
            return param.__index__()
        raise TypeError(f"a parameter, its name or its number is needed, got {type(param).__name__}")

    def _list(self, params: Iterable[ParamLike] | ParamLike | None) -> list[int]:
        if params is None:
            return list(range(lowlevel.engine_param_count(self._need())))
        if isinstance(params, (Param, str)) or not isinstance(params, Iterable):
            return [self._number(params)]
        return [self._number(param) for param in params]

    def param(self, param: ParamLike) -> Param:
        """A parameter by its name or number."""
        index = self._number(param)
        name, dims = self._call(lowlevel.engine_param_info, index)
        return Param(index, name, tuple(dims))

    @property
    def params(self) -> list[Param]:
        """All parameters, in the order of their numbers."""
        return [self.param(index) for index in range(lowlevel.engine_param_count(self._need()))]

    @property
    def state_names(self) -> list[str]:
        """What `read` and `write` access: "master", the states of the optimizer by PyTorch's names, "param" and "grad"."""
        names: list[str] = []
        while (name := self._call(lowlevel.engine_state_name, len(names))) is not None:
            names.append(name)
        return names

    def read(self, param: ParamLike, state: str = "master", out: Any = None) -> Any:
        """Copies a whole tensor out, on every rank: into the float32 array `out`, else a new Tensor. Collective."""
        index = self._number(param)
        if out is None:
            out = zeros(self.param(index).shape)
        self._call(lowlevel.engine_read, index, state, _floats(out, True))
        return out

    def write(self, param: ParamLike, values: Any, state: str = "master") -> None:
        """Replaces a whole tensor by float32 values, the same on all ranks. Collective."""
        self._call(lowlevel.engine_write, self._number(param), state, _floats(values))

    def local_range(self, param: ParamLike) -> tuple[int, int]:
        """(first, count): the elements of the flattened parameter whose states this rank updates."""
        first, count = self._call(lowlevel.engine_local_range, self._number(param))
        return first, count

    def read_local(self, param: ParamLike, state: str = "master", out: Any = None) -> Any:
        """As `read`, of this rank's elements only, without communication."""
        index = self._number(param)
        if out is None:
            out = zeros([self.local_range(index)[1]])
        self._call(lowlevel.engine_read_local, index, state, _floats(out, True))
        return out

    def write_local(self, param: ParamLike, values: Any, state: str = "master") -> None:
        """As `write`, of this rank's elements only, without communication. Write on all ranks, then call `refresh`."""
        self._call(lowlevel.engine_write_local, self._number(param), state, _floats(values))

    def refresh(self) -> None:
        """Makes all compute copies from their masters, behind `write_local`. Collective."""
        self._call(lowlevel.engine_refresh)

    def freeze(self, params: Iterable[ParamLike] | ParamLike, frozen: bool = True) -> None:
        """From the next step on these parameters are not trained, or are trained again. Collective."""
        self._call(lowlevel.engine_freeze, self._list(params), int(frozen))

    def add_group(self, params: Iterable[ParamLike] | ParamLike, **values: Any) -> int:
        """Makes a group of parameters with values of its own, `lr`, `weight_decay`, `betas`, `eps` or `momentum`; returns its
        number. Collective."""
        return self._call(lowlevel.engine_group_add, self._list(params), options_text(**values))

    # ------------------------------------------------------------ numbers

    def __getitem__(self, name: str) -> float:
        return self._call(lowlevel.engine_get, name)

    def __setitem__(self, name: str, value: float) -> None:
        self._call(lowlevel.engine_set, name, value)

    def __delitem__(self, name: str) -> None:
        self._call(lowlevel.engine_set, name, float("nan"))

    @property
    def last_step(self) -> StepResult:
        """What became of the last step; zeros before the first."""
        return StepResult(**self._call(lowlevel.engine_last_step))

    @property
    def skip_reason(self) -> str:
        """Why the last step was skipped, with the first bad tensor of this rank; "" when it was not."""
        return self._call(lowlevel.engine_skip_reason)

    # ------------------------------------------------------------ steps

    def backward(self) -> None:
        """Native: gradients of the last `forward`. Delegate: ends a micro-step. Collective."""
        self._call(lowlevel.backward)

    def step(self) -> StepResult:
        """Ends a step that was made in pieces: clipping and the update. Collective."""
        self._call(lowlevel.step)
        return self.last_step

    # ------------------------------------------------------------ checkpoints

    def save(self, folder: str | os.PathLike[str], *, client_state: Any = None, tag: str | None = None,
             keep: int | None = None, wait: bool = True) -> None:
        """Saves a checkpoint below `folder`, complete and on disk on return. Collective.

        `wait=False`: returns when the state is copied; a thread writes it, and `wait_saved` says when it is on disk.

        `client_state`: anything that JSON can say, which `load` returns. `tag`: a name by which `load` finds it. `keep`: how
        many of the newest are left, besides the newest of each tag.
        """
        asynchronous = {} if wait else {"async": True}
        options = options_text(client_state=client_state, tag=tag, keep=keep, **asynchronous)
        self._call(lowlevel.checkpoint_save, os.fspath(folder), options)

    def wait_saved(self) -> None:
        """Waits for the end of a save that was not waited for, and raises its error. Collective."""
        self._call(lowlevel.checkpoint_wait)

    def load(self, folder: str | os.PathLike[str], *, tag: str | None = None) -> Any:
        """Loads the newest checkpoint below `folder`, or the newest with this tag, or the one at `folder`; returns its client
        state. Collective."""
        return json.loads(self._call(lowlevel.checkpoint_load, os.fspath(folder), options_text(tag=tag)))

    def load_model(self, folder: str | os.PathLike[str]) -> None:
        """Takes the weights of a Hugging Face model folder, by name. Collective."""
        self._call(lowlevel.checkpoint_load_model, os.fspath(folder))

    def save_model(self, folder: str | os.PathLike[str], like: str | os.PathLike[str] | None = None) -> None:
        """Writes the weights as a Hugging Face model folder, with files, names and dtypes of the one at `like`. Collective."""
        self._call(lowlevel.checkpoint_save_model, os.fspath(folder), None if like is None else os.fspath(like))

    # ------------------------------------------------------------ reports

    def plan(self) -> str:
        """The step program in its text form; of a delegate the recorded one, from the second step on."""
        return self._call(lowlevel.engine_plan_print)

    def report(self, form: str = "text") -> Any:
        """Bytes per tier and kind, and the overhead outside the plan; form "data": as a dictionary."""
        return report(form, self._call(lowlevel.engine_plan_report, format_code(form)))

    def trace(self, path: str | os.PathLike[str]) -> None:
        """Writes what was done since the last call as Chrome's trace events; needs `trace=True` at creation."""
        self._call(lowlevel.engine_trace, os.fspath(path))

    def __repr__(self) -> str:
        if self.closed:
            return f"{type(self).__name__}(closed)"
        count = lowlevel.engine_param_count(self._need())
        place = f", rank {self._comm.rank} of {self._comm.size}" if self._comm and not self._comm.closed else ""
        return f"{type(self).__name__}(step {self['step']:.0f}, {count} parameters{place})" if self._started() else (
            f"{type(self).__name__}(not started, {count} parameters{place})")

    def _started(self) -> bool:
        return True


class Engine(_AnyEngine):
    __doc__ = """Trains a graph: libds has forward, backward, optimizer, ZeRO and offload.

    Args:
        config: training options: a dictionary, JSON text or the path of a file (docs/reference/config.md).
        graph: the model; None: that of the configuration's `model` section.
        comm: the group that trains together; None: one rank.
        threads: compute threads of this rank; 0: cores divided by the ranks of this host.
        trace: record what `trace` writes.
        init: initial values of parameters in place of those that the graph draws, see `Init`.

    Inputs are NumPy arrays, torch tensors, `libds.Tensor` or any buffer of the element type that the graph names, in the order of
    the graph; None for one that is not needed.

    """ + (_AnyEngine.__doc__ or "").split("\n\n", 1)[1]

    def __init__(self, config: Config, graph: Graph | None = None, *, comm: Comm | None = None, threads: int = 0,
                 trace: bool = False, init: Init | None = None) -> None:
        own = graph is None
        if graph is None:
            size = 1 if comm is None else lowlevel.comm_size(raw_handle(comm, Comm, "comm"))
            graph = Graph.from_config(config, size)
        try:
            self._create(config, raw_handle(graph, Graph, "graph"), comm, threads, trace, init)
        finally:
            if own:
                graph.close()

    def train_batch(self, *inputs: Any) -> float:
        """One step; the first dimension of the inputs holds gradient_accumulation_steps micro-batches. Returns the mean loss
        over all ranks. Collective.

        A step whose loss or gradients are not finite changes nothing; `last_step.skipped` and `skip_reason` say so.
        """
        return self._call(lowlevel.train_batch, inputs_of(inputs))

    def join(self) -> int:
        """For a rank without data left: takes part in the steps of the others, until all have called this; returns how many
        there were. Collective."""
        return self._call(lowlevel.engine_join)

    def forward(self, *inputs: Any) -> float:
        """The first piece of a step: forward, `backward`, for each micro-batch, then `step`. Returns this rank's loss."""
        return self._call(lowlevel.forward, inputs_of(inputs))

    def eval_batch(self, *inputs: Any) -> float:
        """Loss of one micro-batch without dropout, mean over ranks. Collective."""
        return self._call(lowlevel.eval_batch, inputs_of(inputs))

    def infer(self, *inputs: Any) -> Tensor:
        """Output 1 of the graph for one micro-batch, as f32. Collective."""
        return Tensor._of(self._call(lowlevel.infer, inputs_of(inputs)))


class Lease(Mapping[str, Tensor]):
    """Whole parameters in the compute type, by name, number or `Param`: what `DelegateEngine.gathered` gives."""

    def __init__(self, engine: DelegateEngine, numbers: list[int]) -> None:
        self._engine = engine
        self._views: dict[int, Tensor] = {}
        self._names: dict[int, str] = {}
        for number in numbers:
            self._names[number] = engine.param(number).name
            self._views[number] = Tensor._of(engine._call(lowlevel.engine_param_view, number))

    def __getitem__(self, param: ParamLike) -> Tensor:
        number = self._engine._number(param)
        if number not in self._views:
            raise errors.refuse(f"parameter {param!r} is not in this lease of {', '.join(self._names.values())}")
        return self._views[number]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names.values())

    def __len__(self) -> int:
        return len(self._views)

    def __repr__(self) -> str:
        return f"Lease({', '.join(self)})"

    def _end(self) -> None:
        for view in self._views.values():
            view.close()


class DelegateEngine(_AnyEngine):
    __doc__ = """Optimizer, ZeRO and offload for a host that has forward and backward itself.

    Register parameters with `add_param`, then call `start`. In a step the host leases whole parameters with `gathered`, hands
    over gradients with `grad_ready`, ends each micro-step with `backward` and the step with `step`. All ranks make the same
    calls in the same order.

    Args:
        config: training options: a dictionary, JSON text or the path of a file.
        comm: the group that trains together; None: one rank.
        threads: compute threads of this rank; 0: cores divided by the ranks of this host.
        trace: record what `trace` writes.
        init: initial values of parameters, which are zeros otherwise, see `Init`. It is called inside `start`.

    """ + (_AnyEngine.__doc__ or "").split("\n\n", 1)[1]

    def __init__(self, config: Config, *, comm: Comm | None = None, threads: int = 0, trace: bool = False,
                 init: Init | None = None) -> None:
        self._running = False
        self._create(config, None, comm, threads, trace, init)

    def _started(self) -> bool:
        return self._running

    def add_param(self, name: str, shape: Sequence[int] | int) -> Param:
        """Registers a parameter."""
        dims = list(shape) if isinstance(shape, Sequence) else [shape]
        return Param(self._call(lowlevel.engine_param_add, name, dims), name, tuple(dims))

    def start(self) -> DelegateEngine:
        """Ends the registration, plans the memory and takes it; returns the engine. Collective."""
        self._call(lowlevel.engine_start)
        self._running = True
        return self

    @contextlib.contextmanager
    def gathered(self, params: Iterable[ParamLike] | ParamLike | None = None) -> Iterator[Lease]:
        """Leases whole parameters, None: all, for the block behind `with`; a mapping from names to tensors. Collective.

        The tensors are closed at the end of the block. Arrays that were made from them may still be read then, but their
        values mean nothing.
        """
        numbers = self._list(params)
        self._call(lowlevel.gather_params, numbers)
        lease = None
        try:
            lease = Lease(self, numbers)
            yield lease
        except BaseException:
            with contextlib.suppress(errors.Error):  # what happened in the block is what counts
                self._call(lowlevel.release_params, numbers)
            raise
        else:
            self._call(lowlevel.release_params, numbers)
        finally:
            if lease is not None:
                lease._end()

    def grad_view(self, param: ParamLike) -> Tensor:
        """Where this rank's gradient goes, in the compute type: write it there and give it to `grad_ready`, which then copies
        nothing. Collective."""
        return Tensor._of(self._call(lowlevel.engine_grad_view, self._number(param)))

    def grad_ready(self, param: ParamLike, grad: Any) -> None:
        """Hands over this rank's gradient of a parameter for the running micro-step, in the compute type or f32. Collective."""
        self._call(lowlevel.grad_ready, self._number(param), raw_of(grad))

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """The block behind `with` is an evaluation: leases in it are no part of a step. Collective."""
        self._call(lowlevel.engine_evaluate, 1)
        try:
            yield
        finally:
            self._call(lowlevel.engine_evaluate, 0)


def _floats(array: Any, writable: bool = False) -> Any:
    """An array as a buffer of float32: buffers stay as they are, others come over DLPack."""
    if isinstance(array, (list, tuple)):
        raise TypeError("an array of float32 is needed, got a list: libds.tensor(values) makes one")
    try:
        memoryview(array)
        return array
    except TypeError:
        raw_of(array, writable=writable)  # says what is wrong with it
        return Tensor(array)
