"""Graphs of operations, and plans of training steps."""
from __future__ import annotations

from typing import Any, Callable, Sequence

from . import errors, lowlevel
from ._arguments import checked, ranged, shown
from ._handle import Config, Handle, config_text, options_text
from .comm import format_code, report
from .tensor import DTYPES, Tensor, dtype_code

__all__ = ["Graph", "Value", "Plan"]


@checked
class Value:
    """A value of a graph: an input, a parameter or the result of an operation."""

    __slots__ = ("graph", "index")

    def __init__(self, graph: Graph, index: int) -> None:
        self.graph = graph
        self.index = index

    def __index__(self) -> int:
        return self.index

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Dimensions; None is the number of rows of a micro-step."""
        return tuple(None if dim < 0 else dim for dim in self._info()[1])

    @property
    def dtype(self) -> str:
        """Element type, one of `libds.DTYPES`."""
        return DTYPES[self._info()[0] - 1]

    def _info(self) -> Any:
        return self.graph._call(lowlevel.graph_value_info, self.index)

    def __repr__(self) -> str:
        if self.graph.closed:
            return f"Value({self.index})"
        return f"Value({self.index}, shape={self.shape}, dtype={self.dtype!r})"


@checked
class Graph(Handle):
    """A model as a graph of operations (docs/reference/ops.md).

    Args:
        name: name of the model.
        rows: the largest number of rows of a micro-step.
    """

    def __init__(self, name: str = "model", rows: int = 1) -> None:
        self._open(lowlevel.graph_create(name, rows))

    @classmethod
    def _of(cls, raw: Any) -> Graph:
        self = cls.__new__(cls)
        self._open(raw)
        return self

    @classmethod
    def from_config(cls, config: Config, size: int = 1) -> Graph:
        """Creates the graph of a configuration's `model` section, for training on `size` ranks."""
        return cls._of(lowlevel.graph_from_config(config_text(config), size))

    @classmethod
    def parse(cls, text: str) -> Graph:
        """Reads the text form, which `str(graph)` writes."""
        return cls._of(lowlevel.graph_parse(text))

    def input(self, name: str, dtype: Any, shape: Sequence[int | None]) -> Value:
        """Adds an input. A dimension of None is the number of rows of a micro-step."""
        dims = _dims("shape", shape)
        return Value(self, self._call(lowlevel.graph_input, name, dtype_code(dtype), dims))

    def param(self, name: str, shape: Sequence[int], init: str = "zeros", scale: float = 0.0) -> Value:
        """Adds an f32 parameter; `init` is "zeros", "ones", "normal" with standard deviation `scale`, or "uniform" between
        -`scale` and `scale`."""
        return Value(self, self._call(lowlevel.graph_param, name, _dims("shape", shape), init, scale))

    def op(self, name: str, *inputs: Value, outputs: int = 1, **attributes: Any) -> Any:
        """Adds an operation and returns its output: graph.op("layer_norm", x, weight, bias, eps=1e-5).

        `outputs`: the number of outputs; two or more are returned as a tuple.
        """
        outputs = ranged("outputs", outputs, 0, 1000)
        first = self._call(lowlevel.graph_op, name, self._values("inputs", inputs), options_text(**attributes))
        values = tuple(Value(self, first + i) for i in range(outputs))
        return values if outputs != 1 else values[0]

    def custom_op(self, name: str, inputs: Sequence[Value], outputs: Sequence[tuple[Any, Sequence[int | None]]],
                  forward: Callable[[list[Tensor], list[Tensor]], Any],
                  backward: Callable[[list[Tensor], list[Tensor], list[Tensor | None], list[Tensor | None]], Any] | None = None) -> Any:
        """Adds an operation that Python computes; returns its output, or a tuple of two or more.

        Args:
            name: its name in texts and messages.
            inputs: its input values.
            outputs: (dtype, shape) of each output. A dtype of None is that of the first floating-point input; a dimension of None
                is the number of rows of a micro-step.
            forward: is called with (inputs, outputs) and writes every element of each output.
            backward: is called with (inputs, outputs, output_grads, input_grads) and writes every element of each input_grad. A
                grad that is not needed is None. Without `backward` the operation is not differentiable.

        The tensors are closed after each call, so do not keep an array over one. The step raises the exception of a callback, and
        the engine is then poisoned. The graph keeps the callables alive.
        """
        taken = self._values("inputs", inputs)
        shapes = [(0 if dtype is None else dtype_code(dtype), _dims("outputs", shape)) for dtype, shape in outputs]
        call = (lending(forward), None if backward is None else lending(backward), len(taken), shapes)
        first = self._call(lowlevel.graph_custom_op, name, call, taken)
        values = tuple(Value(self, first + i) for i in range(len(shapes)))
        return values[0] if len(values) == 1 else values

    def output(self, name: str, value: Value) -> None:
        """Makes a value the next output. Output 0 is the scalar loss that is trained; `Engine.infer` returns output
        1."""
        self._call(lowlevel.graph_output, name, self._values("value", [value])[0])

    def find(self, name: str) -> Value:
        """Returns the value of the output of this name, or else of the input, parameter or result."""
        return Value(self, self._call(lowlevel.graph_find, name))

    def grad(self, loss: Value, values: Sequence[Value]) -> list[Value | None]:
        """Appends the gradients of `loss` for `values` and returns them, with None for a value on which it does not depend. May be
        called once per graph.

        Training does not need this call: a differentiated graph is for printing and study.
        """
        found = self._call(lowlevel.graph_grad, self._values("loss", [loss])[0], self._values("values", values))
        return [None if index < 0 else Value(self, index) for index in found]

    def _values(self, name: str, values: Sequence[Value]) -> list[int]:
        found = list(values)
        for value in found:
            if not isinstance(value, Value):
                raise TypeError(f"{name} must be values of this graph, got {shown(value)}")
            if value.graph is not self:
                raise errors.refuse(f"{name} must be of this graph; value {value.index} is of another one")
        return [value.index for value in found]

    def __str__(self) -> str:
        return self._call(lowlevel.graph_print)

    def __repr__(self) -> str:
        if self.closed:
            return "Graph(closed)"
        lines = str(self).splitlines()
        return f"Graph({lines[0].strip(' {') if lines else ''!r}, {len(lines)} lines)"


def _dims(name: str, shape: Sequence[int | None]) -> list[int]:
    return [-1 if dim is None else ranged(name, dim, -1, (1 << 63) - 1) for dim in shape]


def lending(fn: Callable[..., Any]) -> Callable[..., None]:
    """Wraps `fn`, so that it gets lists of tensors in place of low-level ones. The tensors are closed after the call."""

    def call(*lists: list[Any]) -> None:
        lent = [[None if raw is None else Tensor._of(raw) for raw in some] for some in lists]
        try:
            fn(*lent)
        finally:
            kept = [tensor for some in lent for tensor in some if tensor is not None]
            for tensor in kept:
                tensor.close()
        if any(tensor.exports for tensor in kept):
            raise BufferError("a callback has kept an array over a tensor that it was lent")

    return call


@checked
class Plan(Handle):
    """The plan of one rank in a training step, and the memory that it needs; nothing is allocated or sent.

    Args:
        config: the configuration.
        graph: the model; by default that of the configuration.
        rank, size: the rank that is planned, and the number of ranks.
    """

    def __init__(self, config: Config, graph: Graph | None = None, *, rank: int = 0, size: int = 1) -> None:
        raw = None if graph is None else graph._need()
        self._open(lowlevel.plan_create(config_text(config), raw, rank, size))
        self._place = (rank, size)

    def report(self, form: str = "text") -> Any:
        """Reports whether the plan fits this machine, parameters, bytes per tier and kind, instructions, collectives.
        With form "data" returns a dictionary, whose member "fit" has advice."""
        return report(form, self._call(lowlevel.plan_report, format_code(form)))

    def picture(self, *others: Plan) -> str:
        """Returns an SVG document of this plan, and of `others` next to it on the same scale. It shows the queues over a step and
        the bytes in use."""
        return lowlevel.plan_picture([plan._need() for plan in (self, *others)])

    def certificate(self, *others: Plan) -> str:
        """Returns the certificate of the plans of all ranks; this one must be rank 0 (docs/concepts/certificate.md)."""
        return lowlevel.plan_certificate([plan._need() for plan in (self, *others)])

    def __str__(self) -> str:
        return self._call(lowlevel.plan_print)

    def __repr__(self) -> str:
        return "Plan(closed)" if self.closed else f"Plan(rank={self._place[0]}, size={self._place[1]})"
