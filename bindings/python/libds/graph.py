"""Graphs of operations, and plans of training steps."""
from __future__ import annotations

import json
from typing import Any, Callable, Sequence

from . import errors, lowlevel
from ._handle import Config, Handle, config_text, raw_handle
from .comm import format_code, report
from .tensor import DTYPES, Tensor, dtype_code

__all__ = ["Graph", "Value", "Plan"]


class Value:
    """A value of a graph: an input, a parameter or what an operation has computed."""

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
        """The graph of a configuration's `model` section, for training on `size` ranks."""
        return cls._of(lowlevel.graph_from_config(config_text(config), size))

    @classmethod
    def parse(cls, text: str) -> Graph:
        """Reads the text form, which `str(graph)` writes."""
        return cls._of(lowlevel.graph_parse(text))

    def input(self, name: str, dtype: Any, shape: Sequence[int | None]) -> Value:
        """Adds an input. A dimension of None is the rows of a micro-step."""
        dims = [-1 if dim is None else dim for dim in shape]
        return Value(self, self._call(lowlevel.graph_input, name, dtype_code(dtype), dims))

    def param(self, name: str, shape: Sequence[int], init: str = "zeros", scale: float = 0.0) -> Value:
        """Adds an f32 parameter; `init` is "zeros", "ones" or "normal", of which `scale` is the standard deviation."""
        return Value(self, self._call(lowlevel.graph_param, name, list(shape), init, scale))

    def op(self, name: str, *inputs: Value, outputs: int = 1, **attributes: Any) -> Any:
        """Adds an operation and returns its output: graph.op("layer_norm", x, weight, bias, eps=1e-5).

        `outputs`: how many outputs are wanted; two and more come as a tuple.
        """
        attrs = json.dumps(attributes) if attributes else None
        first = self._call(lowlevel.graph_op, name, self._values(inputs), attrs)
        values = tuple(Value(self, first + i) for i in range(outputs))
        return values if outputs != 1 else values[0]

    def custom_op(self, name: str, inputs: Sequence[Value], outputs: Sequence[tuple[Any, Sequence[int | None]]],
                  forward: Callable[[list[Tensor], list[Tensor]], Any],
                  backward: Callable[[list[Tensor], list[Tensor], list[Tensor | None], list[Tensor | None]], Any] | None = None) -> Any:
        """Adds an operation whose work Python does; returns its output, two and more as a tuple.

        Args:
            name: what texts and messages call it.
            inputs: values that it takes.
            outputs: (dtype, shape) of each output; a dtype of None is that of the first floating input, a dimension of None
                the rows of a micro-step.
            forward: is called with (inputs, outputs) and writes every element of each output.
            backward: is called with (inputs, outputs, output_grads, input_grads) and writes every element of each input_grad. A grad
                is None where nobody needs it. Without `backward` the operation is not differentiable.

        The tensors are closed behind each call: an array over one must not be kept. What a callback raises goes on behind the step,
        and the engine is then poisoned. The graph keeps the callables, also from the collector.
        """
        shapes = [(0 if dtype is None else dtype_code(dtype), [-1 if dim is None else dim for dim in shape])
                  for dtype, shape in outputs]
        call = (_lending(forward), None if backward is None else _lending(backward), len(inputs), shapes)
        first = self._call(lowlevel.graph_custom_op, name, call, self._values(inputs))
        values = tuple(Value(self, first + i) for i in range(len(shapes)))
        return values[0] if len(values) == 1 else values

    def output(self, name: str, value: Value) -> None:
        """Makes a value the next output. Output 0 is the scalar loss that is trained, output 1 what `Engine.infer` returns."""
        self._call(lowlevel.graph_output, name, self._values([value])[0])

    def find(self, name: str) -> Value:
        """The value of an output, or else the input, parameter or result of this name."""
        return Value(self, self._call(lowlevel.graph_find, name))

    def grad(self, loss: Value, values: Sequence[Value]) -> list[Value | None]:
        """Appends the gradients of `loss`, once per graph; None where it does not depend on a value.

        Training needs no call of this: a differentiated graph is for printing and study.
        """
        found = self._call(lowlevel.graph_grad, self._values([loss])[0], self._values(values))
        return [None if index < 0 else Value(self, index) for index in found]

    def _values(self, values: Sequence[Any]) -> list[int]:
        for value in values:
            if isinstance(value, Value) and value.graph is not self:
                raise errors.refuse(f"value {value.index} is of another graph")
            if not hasattr(value, "__index__"):
                raise TypeError(f"a value of this graph is needed, got {type(value).__name__}")
        return [value.__index__() for value in values]

    def __str__(self) -> str:
        return self._call(lowlevel.graph_print)

    def __repr__(self) -> str:
        if self.closed:
            return "Graph(closed)"
        lines = str(self).splitlines()
        return f"Graph({lines[0].strip(' {') if lines else ''!r}, {len(lines)} lines)"


def _lending(fn: Callable[..., Any]) -> Callable[..., None]:
    """`fn` over tensors that are closed behind it, for lists of low-level ones."""

    def call(*lists: list[Any]) -> None:
        lent = [[None if raw is None else Tensor._of(raw) for raw in some] for some in lists]
        try:
            fn(*lent)
        finally:
            kept = [tensor for some in lent for tensor in some if tensor is not None]
            for tensor in kept:
                tensor.close()
        if any(tensor.exports for tensor in kept):
            raise BufferError("a custom operation has kept an array over a tensor that it was lent")

    return call


class Plan(Handle):
    """What one rank of a group will do in a training step, and the memory that it needs; nothing is taken or sent.

    Args:
        config: the configuration.
        graph: the model; None: that of the configuration.
        rank, size: the rank that is planned, and the number of ranks.
    """

    def __init__(self, config: Config, graph: Graph | None = None, *, rank: int = 0, size: int = 1) -> None:
        raw = None if graph is None else raw_handle(graph, Graph, "graph")
        self._open(lowlevel.plan_create(config_text(config), raw, rank, size))
        self._place = (rank, size)

    def report(self, form: str = "text") -> Any:
        """Whether it fits this machine, parameters, bytes per tier and kind, instructions, collectives; form "data": as a
        dictionary, whose member "fit" has what would help."""
        return report(form, self._call(lowlevel.plan_report, format_code(form)))

    def picture(self, *others: Plan) -> str:
        """An SVG document of this plan, and others of the same scale beside it: queues over a step, and bytes in use."""
        return lowlevel.plan_picture([raw_handle(plan, Plan, "a plan") for plan in (self, *others)])

    def certificate(self, *others: Plan) -> str:
        """The certificate of the plans of all ranks, this one being rank 0 (docs/concepts/certificate.md)."""
        return lowlevel.plan_certificate([raw_handle(plan, Plan, "a plan") for plan in (self, *others)])

    def __str__(self) -> str:
        return self._call(lowlevel.plan_print)

    def __repr__(self) -> str:
        return "Plan(closed)" if self.closed else f"Plan(rank={self._place[0]}, size={self._place[1]})"
