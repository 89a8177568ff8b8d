"""Engines: training of a graph, and training for a host that computes gradients itself."""
from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Union

from . import errors, lowlevel
from ._arguments import checked, ranged, shown
from ._handle import Config, Handle, config_text, options_text
from .comm import Comm, bytes_of, format_code, report
from .graph import Graph, lending
from .tensor import DTYPES, Tensor, dims_of, dtype_code, inputs_of, raw_of, zeros

__all__ = ["Engine", "DelegateEngine", "Param", "StepResult", "Lease"]

#: Sets initial values of a parameter: (name, first, values). The memoryview `values` of float32 holds the elements of the
#: flattened parameter from `first` on; change it in place.
Init = Callable[[str, int, memoryview], None]


class Param(NamedTuple):
    """A parameter of an engine. Calls that accept a parameter also accept its name or its number."""

    number: int
    name: str
    shape: tuple[int, ...]


ParamLike = Union[Param, str, int]


class Elements(NamedTuple):
    """Consecutive elements of one parameter that an `Update` updates. `values` and `states` change in place; the tensors are
    closed after the call, so do not keep an array over one."""

    param: int  #: number of the parameter
    first: int  #: the first element in the flattened parameter
    update: int  #: number of this update of the parameter, from 1 on
    lr: float  #: learning rate of the parameter's group, like the numbers below
    weight_decay: float
    beta1: float
    beta2: float
    eps: float
    momentum: float
    values: Tensor  #: the float32 values
    grads: Tensor  #: mean gradients over micro-steps and ranks, after clipping
    states: list[Tensor]  #: the states that optimizer.params.states names; all 0 at first


#: The optimizer of `{"type": "Callback"}`: it updates each element by its value, gradient and states alone, and in the same way on
#: all ranks. It is called inside `step` or `train_batch` for the elements whose states this rank keeps.
Update = Callable[[Elements], None]


class StepResult(NamedTuple):
    """The result of a step."""

    step: int  #: number of steps so far, including skipped ones
    updates: int  #: number of updates by the optimizer so far
    loss: float  #: mean over all ranks
    grad_norm: float  #: norm of the mean gradient, before clipping
    lr: float  #: learning rate of parameter group 0
    skipped: bool  #: nothing was updated: loss or gradients had NaN or infinity, or no target counted
    loss_scale: float  #: factor of the loss; 1 unless fp16 is enabled
    loss_scale_at_floor: bool  #: the step was skipped, and the dynamic loss scale is at its minimum


def _updating(update: Update) -> Callable[..., None]:
    """Wraps `update` for low-level tensors."""

    def call(numbers: tuple[Any, ...], arrays: list[Any], states: list[Any]) -> None:
        lending(lambda pair, lent: update(Elements(*numbers, *pair, lent)))(arrays, states)

    return call


@checked
class _AnyEngine(Handle):
    """The common part of both kinds of engine: parameters, states, numbers, checkpoints and reports.

    `engine["lr"]` reads a number by name. The numbers of ds_engine_set can be changed with effect from the next step on:
    `engine["lr"] = 1e-4`, `engine["param_groups[1].weight_decay"] = 0`. After `del engine["lr"]`, configuration and schedule
    set the number again. See `help(libds.lowlevel.engine_get)` and `engine_set` for the names.
    """

    def _create(self, config: Config, raw_graph: Any, comm: Comm | None, threads: int, trace: bool, init: Init | None,
                update: Update | None) -> None:
        options: Any = lowlevel.engine_options()
        options.threads, options.trace = threads, int(trace)
        if init is not None:
            options.set_init(lambda param, name, first, values: init(name, first, values))
        if update is not None:
            options.set_update(_updating(update))
        text = config_text(config)
        if comm is None:
            lock, raw = None, lowlevel.engine_create(None, text, raw_graph, options)
        else:
            raw_comm, lock = comm._need(), comm._lock
            with lock:
                raw = lowlevel.engine_create(raw_comm, text, raw_graph, options)
        self._open(raw, lock)
        self._comm = comm
        # A call holds the handle, and thereby the objects kept here, even if another thread or a callback closes this object. Delegate mode
        # calls init inside start, and the group lives as long as its engines.
        raw.kept = (options, comm._loans if comm else None)
        self._numbers: dict[str, int] = {}

    def close(self) -> None:
        """Frees the memory of the engine. May be called repeatedly."""
        super().close()
        self._comm = None

    # ------------------------------------------------------------ parameters and states

    def _number(self, param: ParamLike, name: str = "param") -> int:
        if isinstance(param, Param):
            return param.number
        self._need()
        if isinstance(param, str):
            index = self._numbers.get(param)
            if index is None:
                index = self._numbers[param] = self._call(lowlevel.engine_param_find, param)
            return index
        try:
            return ranged(name, param, -1 << 31, (1 << 31) - 1)
        except TypeError:
            raise TypeError(f"{name} must be a parameter, its name or its number, got {shown(param)}") from None

    def _list(self, params: Iterable[ParamLike] | ParamLike | None) -> list[int]:
        if params is None:
            return list(range(lowlevel.engine_param_count(self._need())))
        if isinstance(params, (Param, str)) or not isinstance(params, Iterable):
            return [self._number(params, "params")]
        return [self._number(param, "params") for param in params]

    def param(self, param: ParamLike) -> Param:
        """Returns a parameter by its name or number."""
        index = self._number(param)
        name, dims = self._call(lowlevel.engine_param_info, index)
        return Param(index, name, tuple(dims))

    @property
    def params(self) -> list[Param]:
        """All parameters, in the order of their numbers."""
        return [self.param(index) for index in range(lowlevel.engine_param_count(self._need()))]

    @property
    def state_names(self) -> list[str]:
        """The names that `read` and `write` accept: "master", the states of the optimizer by PyTorch's names, "param"
        and "grad"."""
        names: list[str] = []
        while (name := self._call(lowlevel.engine_state_name, len(names))) is not None:
            names.append(name)
        return names

    def read(self, param: ParamLike, state: str = "master", out: Any = None) -> Any:
        """Copies a whole tensor, on every rank, into the float32 array `out` or a new Tensor, and returns the copy. Collective."""
        index = self._number(param)
        if out is None:
            out = zeros(self.param(index).shape)
        self._call(lowlevel.engine_read, index, state, _floats("out", out, True))
        return out

    def write(self, param: ParamLike, values: Any, state: str = "master") -> None:
        """Replaces a whole tensor by float32 values, the same on all ranks. Collective."""
        self._call(lowlevel.engine_write, self._number(param), state, _floats("values", values))

    def local_range(self, param: ParamLike) -> tuple[int, int]:
        """Returns (first, count), the elements of the flattened parameter whose states this rank updates."""
        first, count = self._call(lowlevel.engine_local_range, self._number(param))
        return first, count

    def read_local(self, param: ParamLike, state: str = "master", out: Any = None) -> Any:
        """Like `read`, for this rank's elements only, without communication."""
        index = self._number(param)
        if out is None:
            out = zeros([self.local_range(index)[1]])
        self._call(lowlevel.engine_read_local, index, state, _floats("out", out, True))
        return out

    def write_local(self, param: ParamLike, values: Any, state: str = "master") -> None:
        """Like `write`, for this rank's elements only, without communication. Write on all ranks, then call
        `refresh`."""
        self._call(lowlevel.engine_write_local, self._number(param), state, _floats("values", values))

    def refresh(self) -> None:
        """Recomputes all compute copies from their masters; needed after `write_local`. Collective."""
        self._call(lowlevel.engine_refresh)

    def freeze(self, params: Iterable[ParamLike] | ParamLike, frozen: bool = True) -> None:
        """Freezes parameters from the next step on, or trains them again if `frozen` is false. Collective."""
        self._call(lowlevel.engine_freeze, self._list(params), int(frozen))

    def add_group(self, params: Iterable[ParamLike] | ParamLike, **values: Any) -> int:
        """Moves parameters to a new group with its own `lr`, `weight_decay`, `betas`, `eps` or `momentum`; returns the number of
        the group. Collective."""
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
        """The result of the last step; zeros before the first."""
        return StepResult(**self._call(lowlevel.engine_last_step))

    @property
    def skip_reason(self) -> str:
        """Why the last step was skipped, with the first bad tensor of this rank; "" if it was not."""
        return self._call(lowlevel.engine_skip_reason)

    # ------------------------------------------------------------ steps

    def backward(self) -> None:
        """In native mode computes the gradients of the last `forward`; in delegate mode ends a micro-step. Collective."""
        self._call(lowlevel.backward)

    def step(self) -> StepResult:
        """Ends a step that was run in pieces: clips the gradients and updates the parameters. Collective."""
        self._call(lowlevel.step)
        return self.last_step

    # ------------------------------------------------------------ checkpoints

    def save(self, folder: str | os.PathLike[str], *, client_state: Any = None, tag: str | None = None,
             keep: int | None = None, wait: bool = True) -> None:
        """Saves a checkpoint below `folder`, complete and on disk on return. Collective.

        With `wait=False` the call returns when the state has been copied. A thread then writes the checkpoint, and `wait_saved`
        returns when it is on disk.

        `client_state`: any JSON value, which `load` returns. `tag`: a name by which `load` finds it. `keep`: how many of the
        newest checkpoints stay, besides the newest of each tag.
        """
        asynchronous = {} if wait else {"async": True}
        options = options_text(client_state=client_state, tag=tag, keep=keep, **asynchronous)
        self._call(lowlevel.checkpoint_save, os.fspath(folder), options)

    def wait_saved(self) -> None:
        """Waits for the end of a save with `wait=False`, and raises its error. Collective."""
        self._call(lowlevel.checkpoint_wait)

    def load(self, folder: str | os.PathLike[str], *, tag: str | None = None) -> Any:
        """Loads the newest checkpoint below `folder`, or the newest with this tag, or the one at `folder`; returns its
        client state. Collective."""
        return json.loads(self._call(lowlevel.checkpoint_load, os.fspath(folder), options_text(tag=tag)))

    def attach(self, name: str, value: Any) -> None:
        """Attaches a tensor or array to the next `save`, for this rank. A later value of the same name replaces it."""
        self._call(lowlevel.checkpoint_attach, name, raw_of(value, name="value"))

    def attachment(self, name: str, rank: int = 0) -> Tensor:
        """Returns what `rank` attached to the checkpoint that was loaded last."""
        return Tensor._of(self._call(lowlevel.checkpoint_attachment, name, rank))

    def load_model(self, folder: str | os.PathLike[str]) -> None:
        """Loads the weights of a Hugging Face model folder or a GGUF file, by name. Collective."""
        self._call(lowlevel.checkpoint_load_model, os.fspath(folder))

    def save_model(self, folder: str | os.PathLike[str], like: str | os.PathLike[str] | None = None) -> None:
        """Writes the weights as a Hugging Face model folder, with files, names and dtypes like the folder `like`.
        Collective."""
        self._call(lowlevel.checkpoint_save_model, os.fspath(folder), None if like is None else os.fspath(like))

    # ------------------------------------------------------------ reports

    def plan(self) -> str:
        """Returns the text form of the program of a step. A delegate engine has recorded one from the second step on."""
        return self._call(lowlevel.engine_plan_print)

    def report(self, form: str = "text") -> Any:
        """Returns the bytes per tier and kind, and the overhead outside the plan; with form "data" as a dictionary."""
        return report(form, self._call(lowlevel.engine_plan_report, format_code(form)))

    def trace(self, path: str | os.PathLike[str]) -> None:
        """Writes the work since the last call in Chrome's trace format; needs `trace=True` at creation."""
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


@checked
class Engine(_AnyEngine):
    __doc__ = """An engine that trains a graph: libds runs forward, backward and optimizer, with ZeRO and offload.

    Args:
        config: training options: a dictionary, JSON text or the path of a file (docs/reference/config.md).
        graph: the model; by default that of the configuration's `model` section.
        comm: the group that trains together; by default one rank.
        threads: compute threads of this rank; 0 means the cores divided by the ranks of this host.
        trace: whether to record the events that `trace` writes.
        init: initial values of parameters in place of those that the graph draws, see `Init`.
        update: the optimizer of `{"type": "Callback"}`, see `Update`.

    Inputs are NumPy arrays, torch tensors, `libds.Tensor` or any buffer of the element type that the graph names, in the order of
    the graph. An input that is not needed may be None.

    """ + (_AnyEngine.__doc__ or "").split("\n\n", 1)[1]

    def __init__(self, config: Config, graph: Graph | None = None, *, comm: Comm | None = None, threads: int = 0,
                 trace: bool = False, init: Init | None = None, update: Update | None = None) -> None:
        own = graph is None
        if graph is None:
            size = 1 if comm is None else comm.size
            graph = Graph.from_config(config, size)
        try:
            self._create(config, graph._need(), comm, threads, trace, init, update)
        finally:
            if own:
                graph.close()

    def train_batch(self, *inputs: Any) -> float:
        """Trains one step and returns the mean loss over all ranks. The first dimension of the inputs holds
        gradient_accumulation_steps micro-batches. Collective.

        A step whose loss or gradients are not finite changes nothing; `last_step.skipped` and `skip_reason` say so.
        """
        return self._call(lowlevel.train_batch, inputs_of(inputs))

    def join(self) -> int:
        """Takes part in the steps of the other ranks, after this rank has run out of data, until all ranks have called join;
        returns the number of these steps. Collective."""
        return self._call(lowlevel.engine_join)

    def forward(self, *inputs: Any) -> float:
        """Runs the forward pass of one micro-batch and returns this rank's loss. A step in pieces calls forward and `backward`
        for each micro-batch, then `step`."""
        return self._call(lowlevel.forward, inputs_of(inputs))

    def eval_batch(self, *inputs: Any) -> float:
        """Returns the loss of one micro-batch without dropout, as the mean over all ranks. Collective."""
        return self._call(lowlevel.eval_batch, inputs_of(inputs))

    def infer(self, *inputs: Any) -> Tensor:
        """Returns output 1 of the graph for one micro-batch, as f32, or with the key `inferred` the loss of each target. Collective."""
        return Tensor._of(self._call(lowlevel.infer, inputs_of(inputs)))


class Lease(Mapping[str, Tensor]):
    """Whole parameters in the compute type, by name, number or `Param`, as `DelegateEngine.gathered` returns them."""

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


@checked
class DelegateEngine(_AnyEngine):
    __doc__ = """An engine with optimizer, ZeRO and offload for a host that runs forward and backward itself.

    Register parameters with `add_param`, then call `start`. In a step the host leases whole parameters with `gathered`, hands
    over gradients with `grad_ready`, ends each micro-step with `backward` and the step with `step`. All ranks make the same
    calls in the same order.

    Args:
        config: training options: a dictionary, JSON text or the path of a file.
        comm: the group that trains together; by default one rank.
        threads: compute threads of this rank; 0 means the cores divided by the ranks of this host.
        trace: whether to record the events that `trace` writes.
        init: initial values of parameters, which are zeros otherwise, see `Init`. It is called inside `start`.
        update: the optimizer of `{"type": "Callback"}`, see `Update`.

    """ + (_AnyEngine.__doc__ or "").split("\n\n", 1)[1]

    def __init__(self, config: Config, *, comm: Comm | None = None, threads: int = 0, trace: bool = False,
                 init: Init | None = None, update: Update | None = None) -> None:
        self._running = False
        self._create(config, None, comm, threads, trace, init, update)

    def _started(self) -> bool:
        return self._running

    def add_param(self, name: str, shape: Sequence[int] | int, dtype: Any = None) -> Param:
        """Registers a parameter. Its views and gradients have the compute type of the configuration, or `dtype` "f32"."""
        dims = dims_of(shape)
        code = 0 if dtype is None else dtype_code(dtype)
        return Param(self._call(lowlevel.engine_param_add, name, code, dims), name, tuple(dims))

    def start(self) -> DelegateEngine:
        """Ends the registration, plans and allocates the memory, and returns the engine. Collective."""
        self._call(lowlevel.engine_start)
        self._running = True
        return self

    @contextlib.contextmanager
    def gathered(self, params: Iterable[ParamLike] | ParamLike | None = None) -> Iterator[Lease]:
        """Leases whole parameters, by default all, for the `with` block; returns a mapping from names to tensors.
        Collective.

        The tensors are closed at the end of the block. Arrays made from them may still be read afterwards, but their values
        have no meaning.
        """
        numbers = self._list(params)
        self._call(lowlevel.gather_params, numbers)
        lease = None
        try:
            lease = Lease(self, numbers)
            yield lease
        except BaseException:
            with contextlib.suppress(errors.Error):  # the exception of the block is the one to raise
                self._call(lowlevel.release_params, numbers)
            raise
        else:
            self._call(lowlevel.release_params, numbers)
        finally:
            if lease is not None:
                lease._end()

    def view(self, param: ParamLike) -> Tensor:
        """Returns a tensor over a parameter in the compute type, in the engine's own memory: one that is leased, until its lease
        ends, or one that no rank partitions (all at ZeRO stages 0 to 2), without a lease and as long as the engine lives."""
        return Tensor._of(self._call(lowlevel.engine_param_view, self._number(param)))

    def grad_view(self, param: ParamLike) -> Tensor:
        """Returns the tensor in which libds keeps this rank's gradient, in the compute type. Write the gradient there and pass
        the tensor to `grad_ready`, which then copies nothing, unless the device has its own memory. Collective."""
        return Tensor._of(self._call(lowlevel.engine_grad_view, self._number(param)))

    def grad_ready(self, param: ParamLike, grad: Any) -> None:
        """Hands over this rank's gradient of a parameter for the running micro-step, in the compute type or f32. Collective."""
        self._call(lowlevel.grad_ready, self._number(param), raw_of(grad, name="grad"))

    def grads_ready(self, params: Iterable[ParamLike] | ParamLike, grads: Iterable[Any]) -> None:
        """Hands over the gradients of several parameters in this order, as `grad_ready` does for each. After an error, those
        before the one that the message names have been handed over. Collective."""
        numbers = self._list(params)
        raws = [raw_of(grad, name=f"grads[{i}]") for i, grad in enumerate(grads)]
        if len(raws) != len(numbers):
            raise errors.refuse(f"grads must have {len(numbers)} gradients, one for each parameter, got {len(raws)}")
        self._call(lowlevel.grads_ready, (numbers, raws))

    def drop_step(self) -> None:
        """Forgets the gradients and micro-steps of the current step, as after an exception in the host's backward pass. The next
        gradient begins the step anew. No parameter may be leased. Collective."""
        self._call(lowlevel.engine_drop_step)

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Makes the `with` block an evaluation, whose leases are not part of a step. Collective."""
        self._call(lowlevel.engine_evaluate, 1)
        try:
            yield
        finally:
            self._call(lowlevel.engine_evaluate, 0)


def _floats(name: str, array: Any, writable: bool = False) -> Any:
    """Returns the memory of a float32 array for the low-level module; refuses any other array."""
    if isinstance(array, (list, tuple)):
        raise TypeError(f"{name} must be an array of float32, got {shown(array)}: libds.tensor(values) makes one")
    raw = raw_of(array, writable=writable, name=name)
    dtype = DTYPES[lowlevel.tensor_info(raw)[0] - 1]
    if dtype != "f32":
        raise TypeError(f"{name} must be an array of float32, got {dtype}")
    return bytes_of(name, array, writable)
