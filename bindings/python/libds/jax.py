"""The optimizer of a JAX program: libds keeps masters and optimizer states, with ZeRO 0 to 2 and offload, and updates parameters.

`import libds.jax` imports neither JAX nor NumPy; the first `Optimizer` does. The guide is docs/guides/jax.md.
"""
from __future__ import annotations

import importlib
import os
from typing import Any

from . import errors, lowlevel
from ._arguments import checked, shown
from ._handle import Config
from .comm import Comm
from .engine import DelegateEngine
from .run import describe_config
from .tensor import raw_of

__all__ = ["Optimizer"]

_DTYPES = ("float32", "bfloat16", "float16")


@checked
class Optimizer:
    """Keeps the parameters of a JAX program and updates them with its gradients.

    Args:
        params: a tree of arrays of float32, bfloat16 or float16, such as a dictionary. All ranks begin with the values of rank 0.
        config: training options: a dictionary, JSON text or the path of a file. The ZeRO stage is 0, 1 or 2.
        comm: the group that trains together; by default one rank.
        threads: compute threads of this rank; 0 means the cores divided by the ranks of this host.
        trace: whether to record the events that `engine.trace` writes.

    A parameter is named by its path in the tree, as `jax.tree_util.keystr` writes it: "['layers'][0]['w']". The trees that this
    class returns have the structure of `params` and its devices, and arrays in the compute type of the configuration. The arrays are
    copies, because JAX takes arrays as immutable, whereas an update writes to the memory of the engine.

    All ranks make the same calls in the same order. `engine` is the `DelegateEngine`, with numbers, states and reports:
    `optimizer.engine["lr"] = 1e-4`.
    """

    def __init__(self, params: Any, config: Config, comm: Comm | None = None, *, threads: int = 0, trace: bool = False) -> None:
        self._jax = _jax()
        self._micro_steps = 0  # of the current step, so far
        self._addresses: list[int] = []
        self._views: list[Any] = []  # arrays over the memory of the engine, at these addresses
        _refuse_config(config, 1 if comm is None else comm.size)
        leaves, self._tree = self._jax.tree_util.tree_flatten_with_path(params)
        self.names = tuple(_name(self._jax, path) for path, _ in leaves)  #: the names of the parameters, in the order of the tree
        arrays = [self._parameter(name, leaf) for name, (_, leaf) in zip(self.names, leaves)]
        if not arrays:
            raise errors.refuse(f"params must be a tree of arrays and have at least one, got {shown(params)}")
        self._places = [array.sharding for array in arrays]
        copy = self._jax.numpy.copy  # the function below holds no reference to this object
        self._copies = self._jax.jit(lambda views: [copy(view) for view in views])
        self.client_state: Any = None  #: the value that `save` was given for the checkpoint that was loaded last
        self.engine = DelegateEngine(config, comm=comm, threads=threads, trace=trace)
        try:
            for name, array in zip(self.names, arrays):
                self.engine.add_param(name, array.shape)
            self.engine.start()
            self._write(arrays, comm)
            self._look()
        except BaseException:
            self.engine.close()
            raise

    def _parameter(self, name: str, leaf: Any) -> Any:
        """Returns a leaf of `params` as an array of JAX."""
        what = f"parameter {name}"
        _check_array(self._jax, what, leaf)
        if str(leaf.dtype) not in _DTYPES:
            raise errors.refuse(f"{what} must be of float32, bfloat16 or float16, got {leaf.dtype}: keep arrays that are not trained in "
                                f"another tree")
        return self._jax.numpy.asarray(leaf)

    def _write(self, arrays: list[Any], comm: Comm | None) -> None:
        """Writes the values of rank 0 to the parameters."""
        import numpy  # pylint: disable=import-outside-toplevel

        for number, array in enumerate(arrays):
            values = numpy.array(self._jax.device_get(array), dtype="float32")
            if comm is not None and comm.size > 1:
                comm.broadcast(values)
            self.engine.write(number, values)

    # ------------------------------------------------------------ parameters and numbers

    def params(self, copy: bool = True) -> Any:
        """Returns the tree of parameters.

        With `copy=False` the arrays are over the memory of the engine where JAX can use it, and the next step, load or write
        changes their values. Before that, wait for the computations that read them. Never donate them to a compiled function.
        """
        arrays = self._look()
        if copy:
            arrays = self._copies(arrays)
        arrays = [array if array.sharding == place else self._jax.device_put(array, place) for array, place in zip(arrays, self._places)]
        # The copies are made now, before the next step writes to their source.
        return self._jax.tree_util.tree_unflatten(self._tree, self._jax.block_until_ready(arrays))

    def _look(self) -> list[Any]:
        """Returns arrays over the memory of the engine, or of its copy on the host if the engine's device has its own memory."""
        engine = self._need()
        views = [engine.view(number) for number in range(len(self.names))]
        addresses = [view.data_ptr for view in views]
        if addresses != self._addresses:
            self._views = [self._jax.numpy.from_dlpack(view) for view in views]
            self._addresses = addresses
        return self._views

    @property
    def lr(self) -> float:
        """Learning rate of the next step, of parameter group 0."""
        return self._need()["lr"]

    @property
    def grad_norm(self) -> float:
        """Norm of the mean gradient of the last step, before clipping."""
        return self._need()["grad_norm"]

    @property
    def steps(self) -> int:
        """Number of steps so far, including skipped ones."""
        return int(self._need()["step"])

    @property
    def loss_scale(self) -> float:
        """With fp16, the factor by which the loss of the next step is to be multiplied; otherwise 1."""
        return self._need()["loss_scale"]

    # ------------------------------------------------------------ steps

    def accumulate(self, grads: Any) -> None:
        """Hands over the gradients of a micro-step that is not the last one of its step: a tree like `params`, of arrays in float32 or
        in the compute type. Collective.

        The update uses the mean over the micro-steps and ranks. A step may have any number of micro-steps, the same on all ranks;
        with another one than gradient_accumulation_steps it is slower.
        """
        self._hand_over(grads, last=False)

    def step(self, grads: Any, *, copy: bool = True) -> Any:
        """Hands over the gradients of the last micro-step, updates the parameters, and returns them like `params`. Collective.

        If gradients are not finite, nothing is updated; `engine.last_step.skipped` and `engine.skip_reason` say so.
        """
        self._hand_over(grads, last=True)
        self.engine.step()
        self._micro_steps = 0
        return self.params(copy)

    def _hand_over(self, grads: Any, last: bool) -> None:
        engine = self._need()
        leaves = self._gradients(grads)
        self._jax.block_until_ready(leaves)
        raws = [self._raw(f"gradient of {name}", leaf) for name, leaf in zip(self.names, leaves)]
        wanted, known = self._micro_steps + (1 if last else 2), engine["micro_steps"]
        if wanted > known or (last and wanted < known):
            engine["micro_steps"] = wanted
        engine._call(lowlevel.grads_ready, (range(len(raws)), raws))
        engine.backward()
        self._micro_steps += 1

    def _gradients(self, grads: Any) -> list[Any]:
        """Returns the leaves of `grads`, and refuses a tree of another structure or with arrays of another shape or type."""
        leaves, tree = self._jax.tree_util.tree_flatten(grads)
        if tree != self._tree:
            paths = self._jax.tree_util.tree_flatten_with_path(grads)[0]
            given = [_name(self._jax, path) for path, _ in paths]
            raise errors.refuse(f"grads must have the structure of params, but {_difference(self.names, given, self._tree, tree)}")
        float32 = self._jax.numpy.dtype("float32")
        for name, leaf, view in zip(self.names, leaves, self._views):
            what = f"gradient of {name}"
            _check_array(self._jax, what, leaf)
            if tuple(leaf.shape) != view.shape:
                raise errors.refuse(f"{what} must have shape {view.shape}, got {tuple(leaf.shape)}")
            if leaf.dtype != view.dtype and leaf.dtype != float32:
                kinds = dict.fromkeys(["float32", str(view.dtype)])
                raise errors.refuse(f"{what} must be of {' or '.join(kinds)}, got {leaf.dtype}")
        return leaves

    def _raw(self, what: str, leaf: Any) -> Any:
        """Returns a gradient as a tensor over its memory, or over a copy on the host if it lies elsewhere or on several devices."""
        if isinstance(leaf, self._jax.Array):
            devices = leaf.devices()
            if len(devices) == 1 and next(iter(devices)).platform == "cpu":
                return raw_of(leaf.__dlpack__(), name=what)
            leaf = self._jax.device_get(leaf)
        if str(leaf.dtype) == "bfloat16":  # a type of NumPy's that has no buffer protocol
            return raw_of(leaf.view("uint16"), "bf16", name=what)
        return raw_of(leaf, name=what)

    # ------------------------------------------------------------ checkpoints

    def save(self, folder: str | os.PathLike[str], *, client_state: Any = None, tag: str | None = None, keep: int | None = None) -> None:
        """Saves a checkpoint as `DelegateEngine.save` does. Collective."""
        self._need().save(folder, client_state=client_state, tag=tag, keep=keep)

    def load(self, folder: str | os.PathLike[str], *, tag: str | None = None) -> Any:
        """Loads a checkpoint of any number of ranks, stage and offload, as `DelegateEngine.load` does, and returns the tree of
        parameters; `client_state` has the value that was saved with it. Collective."""
        self.client_state = self._need().load(folder, tag=tag)
        return self.params()

    # ------------------------------------------------------------ end

    def _need(self) -> DelegateEngine:
        engine = self.__dict__.get("engine")
        if engine is None:
            raise errors.unmade("jax.Optimizer")
        if engine.closed:
            raise errors.closed("Optimizer")
        return engine

    def close(self) -> None:
        """Frees the memory of the engine as soon as no array shares it. May be called repeatedly."""
        self._views, self._addresses = [], []
        self.engine.close()

    def __enter__(self) -> Optimizer:
        self._need()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Optimizer({self.engine!r})"


def _jax() -> Any:
    try:
        return importlib.import_module("jax")
    except ImportError as error:
        raise ImportError(f"libds.jax needs the Python package jax, which cannot be imported: {error}") from None


def _refuse_config(config: Config, ranks: int) -> None:
    effective = describe_config(config, ranks)["config"]
    if effective.get("zero_optimization", {}).get("stage") == 3:
        raise errors.ConfigError(
            errors.Status.CONFIG, "zero_optimization.stage: libds.jax works at stages 0 to 2, got 3: JAX runs a step as one compiled "
            "function, which cannot gather the parameters of one layer after the other", "zero_optimization.stage")
    if effective.get("frozen_parameters"):
        raise errors.ConfigError(errors.Status.CONFIG, f"frozen_parameters: libds.jax trains every array of params, got "
                                 f"{effective['frozen_parameters']}: keep arrays that are not trained in another tree", "frozen_parameters")


def _name(jax: Any, path: Any) -> str:
    """Returns the name of a parameter; the path of a tree that is a single array is empty."""
    return jax.tree_util.keystr(path) or "params"


def _check_array(jax: Any, what: str, leaf: Any) -> None:
    if isinstance(leaf, jax.core.Tracer):
        raise errors.refuse(f"{what} must be an array, got a value that JAX traces: use the optimizer outside of jit and grad")
    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        raise TypeError(f"{what} must be an array, got {shown(leaf)}")
    if isinstance(leaf, jax.Array) and leaf.is_deleted():
        raise errors.refuse(f"{what} must be an array, got one that was deleted: it was donated to a compiled function")


def _difference(names: tuple[str, ...], given: list[str], ours: Any, theirs: Any) -> str:
    """Describes the first difference of two trees: a leaf that one lacks, or containers of different types."""
    here, there = set(names), set(given)
    for name in names:
        if name not in there:
            return f"lacks {name}"
    for name in given:
        if name not in here:
            return f"also has {name}"
    while True:
        pairs = [(one, other) for one, other in zip(ours.children(), theirs.children()) if one != other]
        if ours.node_data() != theirs.node_data() or not pairs:
            return f"has {_container(theirs)} where params has {_container(ours)}"
        ours, theirs = pairs[0]


def _container(tree: Any) -> str:
    kind, data = tree.node_data() or (None, None)
    name = "an array" if kind is None else f"a {kind.__name__}"
    return name if data is None else f"{name} with {data}"
