"""A function for each operation of a graph: operands first, then attributes by name.

Each calls graph.op(name, *operands, outputs=..., **attributes) without the attributes that have their default, and returns
all results, several as a tuple. Written by tools/bindings.py; do not edit.
"""
from typing import Literal, Optional, Sequence

from . import errors
from ._arguments import checked, shown
from .graph import Graph, Value

__all__ = ["embedding", "embedding_dw", "position", "position_dw", "last_row", "linear", "linear_dx", "linear_dw",
           "linear_db", "layer_norm", "layer_norm_dx", "layer_norm_dw", "rms_norm", "rms_norm_dx", "rms_norm_dw",
           "gelu", "gelu_dx", "relu", "relu_dx", "silu", "silu_dx", "tanh", "tanh_dx", "relu2", "relu2_dx", "sigmoid",
           "sigmoid_dx", "quick_gelu", "quick_gelu_dx", "softplus", "softplus_dx", "laplace", "laplace_dx", "glu",
           "glu_packed", "glu_dx", "glu_dx_packed", "mul", "scale", "softcap", "softcap_dx", "attention",
           "attention_packed", "attention_dx", "attention_dx_packed", "cached_attention", "cached_attention_packed",
           "rope", "softmax", "causal_softmax", "softmax_dx", "top_gates", "top_gates_dx", "scale_rows",
           "scale_rows_dw", "load_balance", "load_balance_dx", "add", "dropout", "layerdrop", "layerdrop_dx", "fill",
           "cast", "cross_entropy", "cross_entropy_dx", "linear_cross_entropy", "linear_cross_entropy_dx",
           "linear_cross_entropy_dx_kept", "count_targets", "mse", "mse_dx", "preference_loss",
           "preference_loss_reference", "preference_loss_dx", "preference_loss_dx_reference", "dora_norm", "dora",
           "dora_dx", "dora_dm"]

_DEFAULTS = {
    "embedding": {"padding": -1},
    "embedding_dw": {"padding": -1},
    "linear": {"transposed": 0},
    "linear_dx": {"transposed": 0},
    "linear_dw": {"transposed": 0},
    "rms_norm": {"offset": 0},
    "rms_norm_dx": {"offset": 0},
    "gelu": {"form": "tanh"},
    "gelu_dx": {"form": "tanh"},
    "attention": {"kv_heads": 0, "causal": 1, "window": 0, "scale": 0.0, "softcap": 0.0, "per_head": 0, "dropout": 0.0,
        "documents": 0},
    "attention_dx": {"kv_heads": 0, "causal": 1, "window": 0, "scale": 0.0, "softcap": 0.0, "per_head": 0, "dropout":
        0.0, "documents": 0},
    "cached_attention": {"kv_heads": 0, "window": 0, "scale": 0.0, "softcap": 0.0, "per_head": 0},
    "rope": {"dims": 0, "interleaved": 0, "inverse": 0, "scaling": "none", "magnitude": 0.0, "truncate": 1},
    "softmax": {"log": 0},
    "softmax_dx": {"log": 0},
    "top_gates": {"normalize": 1},
    "top_gates_dx": {"normalize": 1},
    "fill": {"loss_scale": 0},
    "cross_entropy": {"label_smoothing": 0.0, "z_loss": 0.0, "reduction": "mean"},
    "cross_entropy_dx": {"label_smoothing": 0.0, "z_loss": 0.0, "reduction": "mean"},
    "linear_cross_entropy": {"label_smoothing": 0.0, "z_loss": 0.0, "reduction": "mean", "kept": 0},
    "linear_cross_entropy_dx": {"label_smoothing": 0.0, "z_loss": 0.0, "reduction": "mean", "kept": 0},
    "preference_loss": {"loss": "sigmoid", "beta": 0.1, "label_smoothing": 0.0, "margin": 0.0},
    "preference_loss_dx": {"loss": "sigmoid", "beta": 0.1, "label_smoothing": 0.0, "margin": 0.0},
    "dora_norm": {"transposed": 0},
}


def _taken(graph, name, operand):
    if not isinstance(operand, Value):
        raise TypeError(f"{name} must be a value of the graph, got {shown(operand)}")
    if operand.graph is not graph:
        raise errors.refuse(f"{name} must be a value of this graph, got one of another graph")
    return operand


def _add(graph, op, operands, outputs, /, *, optional=(), several="", **attributes):
    if not isinstance(graph, Graph):
        raise TypeError(f"graph must be a libds.Graph, got {shown(graph)}")
    taken = []
    for name, operand in operands.items():
        if name == several:
            taken += [_taken(graph, f"{name}[{i}]", one) for i, one in enumerate(operand)]
        elif operand is not None or name not in optional:
            taken.append(_taken(graph, name, operand))
    defaults = _DEFAULTS.get(op, {})
    given = {name: int(value) if isinstance(value, bool) else value for name, value in attributes.items()
             if value is not None and value != defaults.get(name)}
    return graph.op(op, *taken, outputs=len(operands[several]) if outputs is None else outputs, **given)

@checked
def embedding(graph, w, ids, *, padding: int = -1):
    """The rows of a table that ids name.

    Args:
        graph: the graph that the operation is added to
        w: T[V,C], a row for each word
        ids: i32[n], words, 0 to V-1
        padding: row of w that gets no gradient from this operation; -1: no row

    Returns:
        y: T[n,C], a row for each id
    """
    return _add(graph, "embedding", {"w": w, "ids": ids}, 1, padding=padding)


@checked
def embedding_dw(graph, dy, ids, *, rows: int, padding: int = -1):
    """The gradient of the table of an embedding: the sum of the rows of dy by id, in row order in A. Not
    differentiable.

    Args:
        graph: the graph that the operation is added to
        dy: T[n,C], gradient of the result
        ids: i32[n], words, 0 to V-1
        rows: V
        padding: row of w that gets no gradient from this operation; -1: no row

    Returns:
        dw: T[V,C], gradient of w
    """
    return _add(graph, "embedding_dw", {"dy": dy, "ids": ids}, 1, rows=rows, padding=padding)


@checked
def position(graph, x, w, *, seq: int):
    """Adds to each row the row of a table for its position in the sequence: y[r] = x[r] + w[r mod seq].

    Args:
        graph: the graph that the operation is added to
        x: T[n,C], rows
        w: T[P,C], a row for each position
        seq: rows of a sequence, at most P

    Returns:
        y: T[n,C], sums
    """
    return _add(graph, "position", {"x": x, "w": w}, 1, seq=seq)


@checked
def position_dw(graph, dy, *, seq: int, rows: int):
    """The gradient of the table of a position; rows from seq on are 0. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        dy: T[n,C], gradient of the result
        seq: rows of a sequence, at most P
        rows: P

    Returns:
        dw: T[P,C], gradient of w
    """
    return _add(graph, "position_dw", {"dy": dy}, 1, seq=seq, rows=rows)


@checked
def last_row(graph, x):
    """The last row. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        x: T[n,C], rows

    Returns:
        y: T[1,C], x[n-1]
    """
    return _add(graph, "last_row", {"x": x}, 1)


@checked
def linear(graph, x, w, b = None, *, transposed: bool = False):
    """The product x w^T of rows and a weight, plus a bias if given.

    Args:
        graph: the graph that the operation is added to
        x: T[n,I], rows
        w: T[O,I], weight
        b: T[O], bias
        transposed: 1: the weight is stored as T[I,O]

    Returns:
        y: T[n,O], products
    """
    return _add(graph, "linear", {"x": x, "w": w, "b": b}, 1, optional=["b"], transposed=transposed)


@checked
def linear_dx(graph, dy, w, *, transposed: bool = False):
    """The gradient dy w of the rows of a linear. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        dy: T[n,O], gradient of the result
        w: T[O,I], weight
        transposed: 1: the weight is stored as T[I,O]

    Returns:
        dx: T[n,I], gradient of x
    """
    return _add(graph, "linear_dx", {"dy": dy, "w": w}, 1, transposed=transposed)


@checked
def linear_dw(graph, dy, x, *, transposed: bool = False):
    """The gradient dy^T x of the weight of a linear. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        dy: T[n,O], gradient of the result
        x: T[n,I], rows
        transposed: 1: the weight is stored as T[I,O]

    Returns:
        dw: T[O,I], gradient of w
    """
    return _add(graph, "linear_dw", {"dy": dy, "x": x}, 1, transposed=transposed)


@checked
def linear_db(graph, dy):
    """The gradient of the bias of a linear: the sum of each column. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        dy: T[n,O], gradient of the result

    Returns:
        db: T[O], gradient of b
    """
    return _add(graph, "linear_db", {"dy": dy}, 1)


@checked
def layer_norm(graph, x, w = None, b = None, *, eps: float):
    """Normalized rows (x - mean) rstd w + b; w and b are given together or left out, which means 1 and 0.

    Args:
        graph: the graph that the operation is added to
        x: T[n,C], rows
        w: T[C], weight
        b: T[C], bias
        eps: added to the variance or mean square before its square root, > 0

    Returns:
        y: T[n,C], normalized rows
        mean: A[n], mean of each row
        rstd: A[n], 1 / sqrt(variance + eps) of each row
    """
    return _add(graph, "layer_norm", {"x": x, "w": w, "b": b}, 3, optional=["w", "b"], eps=eps)


@checked
def layer_norm_dx(graph, dy, x, mean, rstd, w = None):
    """The gradient of the rows of a layer_norm. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        dy: T[n,C], gradient of the result
        x: T[n,C], rows
        mean: A[n], mean of each row
        rstd: A[n], 1 / sqrt(variance + eps) of each row
        w: T[C], weight

    Returns:
        dx: T[n,C], gradient of x
    """
    return _add(graph, "layer_norm_dx", {"dy": dy, "x": x, "w": w, "mean": mean, "rstd": rstd}, 1, optional=["w"])


@checked
def layer_norm_dw(graph, dy, x, mean, rstd):
    """The gradients of weight and bias of a layer_norm. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        dy: T[n,C], gradient of the result
        x: T[n,C], rows
        mean: A[n], mean of each row
        rstd: A[n], 1 / sqrt(variance + eps) of each row

    Returns:
        dw: T[C], gradient of w
        db: T[C], gradient of b
    """
    return _add(graph, "layer_norm_dw", {"dy": dy, "x": x, "mean": mean, "rstd": rstd}, 2)


@checked
def rms_norm(graph, x, w, *, eps: float, offset: bool = False):
    """Normalizes each run of D columns by itself: x rstd w. With D = C the runs are whole rows; with the width of a
    head they are the heads of q or k.

    Args:
        graph: the graph that the operation is added to
        x: T[n,C], rows
        w: T[D], weight; D divides C
        eps: added to the variance or mean square before its square root, > 0
        offset: 1: w + 1 in place of w

    Returns:
        y: T[n,C], normalized rows
        rstd: A[n,C/D], 1 / sqrt(mean of x^2 + eps) of each run
    """
    return _add(graph, "rms_norm", {"x": x, "w": w}, 2, eps=eps, offset=offset)


@checked
def rms_norm_dx(graph, dy, x, w, rstd, *, offset: bool = False):
    """The gradient of the rows of an rms_norm. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        dy: T[n,C], gradient of the result
        x: T[n,C], rows
        w: T[D], weight; D divides C
        rstd: A[n,C/D], 1 / sqrt(mean of x^2 + eps) of each run
        offset: 1: w + 1 in place of w

    Returns:
        dx: T[n,C], gradient of x
    """
    return _add(graph, "rms_norm_dx", {"dy": dy, "x": x, "w": w, "rstd": rstd}, 1, offset=offset)


@checked
def rms_norm_dw(graph, dy, x, rstd, *, width: int):
    """The gradient of the weight of an rms_norm, for any offset: the sum of dy x rstd over rows and runs. Not
    differentiable.

    Args:
        graph: the graph that the operation is added to
        dy: T[n,C], gradient of the result
        x: T[n,C], rows
        rstd: A[n,C/D], 1 / sqrt(mean of x^2 + eps) of each run
        width: D

    Returns:
        dw: T[D], gradient of w
    """
    return _add(graph, "rms_norm_dw", {"dy": dy, "x": x, "rstd": rstd}, 1, width=width)


@checked
def gelu(graph, x, *, form: Literal["tanh", "erf", "10"] = "tanh"):
    """The activation x Phi(x), Phi the distribution function of normal numbers, of each element.

    Args:
        graph: the graph that the operation is added to
        x: T[any], any tensor
        form: tanh: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); erf: 0.5 x (1 + erf(x/sqrt(2))); 10: as erf, but at
            most 10 (tanh, erf, 10)

    Returns:
        y: T[any], activations
    """
    return _add(graph, "gelu", {"x": x}, 1, form=form)


@checked
def gelu_dx(graph, dy, x, *, form: Literal["tanh", "erf", "10"] = "tanh"):
    """The gradient of the activation gelu. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        dy: T[any], gradient of the result
        x: T[any], any tensor
        form: tanh: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); erf: 0.5 x (1 + erf(x/sqrt(2))); 10: as erf, but at
            most 10 (tanh, erf, 10)

    Returns:
        dx: T[any], gradient of x
    """
    return _add(graph, "gelu_dx", {"dy": dy, "x": x}, 1, form=form)


@checked
def relu(graph, x):
    """The activation max(x, 0) of each element.

    Args:
        graph: the graph that the operation is added to
        x: T[any], any tensor

    Returns:
        y: T[any], activations
    """
    return _add(graph, "relu", {"x": x}, 1)


@checked
def relu_dx(graph, dy, x):
    """The gradient of the activation relu. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        dy: T[any], gradient of the result
        x: T[any], any tensor

    Returns:
        dx: T[any], gradient of x
    """
    return _add(graph, "relu_dx", {"dy": dy, "x": x}, 1)


@checked
def silu(graph, x):
    """The activation x / (1 + exp(-x)) of each element.

    Args:
        graph: the graph that the operation is added to
        x: T[any], any tensor

    Returns:
        y: T[any], activations
    """
    return _add(graph, "silu", {"x": x}, 1)


@checked
def silu_dx(graph, dy, x):
    """The gradient of the activation silu. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        dy: T[any], gradient of the result
        x: T[any], any tensor

    Returns:
        dx: T[any], gradient of x
    """
    return _add(graph, "silu_dx", {"dy": dy, "x": x}, 1)


@checked
def tanh(graph, x):
    """The activation tanh(x) of each element.

    Args:
        graph: the graph that the operation is added to
        x: T[any], any tensor

    Returns:
        y: T[any], activations
    """
    return _add(graph, "tanh", {"x": x}, 1)


@checked
def tanh_dx(graph, dy, x):
    """The gradient of the activation tanh. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        dy: T[any], gradient of the result
        x: T[any], any tensor

    Returns:
        dx: T[any], gradient of x
    """
    return _add(graph, "tanh_dx", {"dy": dy, "x": x}, 1)


@checked
def relu2(graph, x):
    """The activation max(x, 0)^2 of each element.

    Args:
        graph: the graph that the operation is added to
        x: T[any], any tensor

    Returns:
        y: T[any], activations
    """
    return _add(graph, "relu2", {"x": x}, 1)


@checked
def relu2_dx(graph, dy, x):
    """The gradient of the activation relu2. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        dy: T[any], gradient of the result
        x: T[any], any tensor

    Returns:
        dx: T[any], gradient of x
    """
    return _add(graph, "relu2_dx", {"dy": dy, "x": x}, 1)


@checked
def sigmoid(graph, x):
    """The activation 1 / (1 + exp(-x)) of each element.

    Args:
        graph: the graph that the operation is added to
        x: T[any], any tensor

    Returns:
        y: T[any], activations
    """
    return _add(graph, "sigmoid", {"x": x}, 1)


@checked
def sigmoid_dx(graph, dy, x):
    """The gradient of the activation sigmoid. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        dy: T[any], gradient of the result
        x: T[any], any tensor

    Returns:
        dx: T[any], gradient of x
    """
    return _add(graph, "sigmoid_dx", {"dy": dy, "x": x}, 1)


@checked
def quick_gelu(graph, x):
    """The activation x / (1 + exp(-1.702 x)) of each element.

    Args:
        graph: the graph that the operation is added to
        x: T[any], any tensor

    Returns:
        y: T[any], activations
    """
    return _add(graph, "quick_gelu", {"x": x}, 1)


@checked
def quick_gelu_dx(graph, dy, x):
    """The gradient of the activation quick_gelu. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        dy: T[any], gradient of the result
        x: T[any], any tensor

    Returns:
        dx: T[any], gradient of x
    """
    return _add(graph, "quick_gelu_dx", {"dy": dy, "x": x}, 1)


@checked
def softplus(graph, x):
    """The activation log(1 + exp(x)) of each element.

    Args:
        graph: the graph that the operation is added to
        x: T[any], any tensor

    Returns:
        y: T[any], activations
    """
    return _add(graph, "softplus", {"x": x}, 1)


@checked
def softplus_dx(graph, dy, x):
    """The gradient of the activation softplus. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        dy: T[any], gradient of the result
        x: T[any], any tensor

    Returns:
        dx: T[any], gradient of x
    """
    return _add(graph, "softplus_dx", {"dy": dy, "x": x}, 1)


@checked
def laplace(graph, x):
    """The activation 0.5 (1 + erf((x - 0.707107) / (0.282095 sqrt(2)))) of each element.

    Args:
        graph: the graph that the operation is added to
        x: T[any], any tensor

    Returns:
        y: T[any], activations
    """
    return _add(graph, "laplace", {"x": x}, 1)


@checked
def laplace_dx(graph, dy, x):
    """The gradient of the activation laplace. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        dy: T[any], gradient of the result
        x: T[any], any tensor

    Returns:
        dx: T[any], gradient of x
    """
    return _add(graph, "laplace_dx", {"dy": dy, "x": x}, 1)


@checked
def glu(graph, gate, up, *, act: Literal["silu", "gelu_tanh", "gelu_erf", "gelu_10", "relu", "tanh", "relu2", "laplace",
        "sigmoid", "quick_gelu", "softplus"]):
    """A gated linear unit act(gate) up, rounded once.

    Args:
        graph: the graph that the operation is added to
        gate: T[n,F], the operand that is activated
        up: T[n,F], the operand that is gated
        act: the activation: gelu_tanh, gelu_erf and gelu_10 are the forms of gelu, others are operations (silu,
            gelu_tanh, gelu_erf, gelu_10, relu, tanh, relu2, laplace, sigmoid, quick_gelu, softplus)

    Returns:
        y: T[n,F], act(gate) up
    """
    return _add(graph, "glu", {"gate": gate, "up": up}, 1, act=act)


@checked
def glu_packed(graph, x, *, act: Literal["silu", "gelu_tanh", "gelu_erf", "gelu_10", "relu", "tanh", "relu2", "laplace",
        "sigmoid", "quick_gelu", "softplus"]):
    """A gated linear unit act(gate) up, rounded once.

    Args:
        graph: the graph that the operation is added to
        x: T[n,2F], gate and up, side by side
        act: the activation: gelu_tanh, gelu_erf and gelu_10 are the forms of gelu, others are operations (silu,
            gelu_tanh, gelu_erf, gelu_10, relu, tanh, relu2, laplace, sigmoid, quick_gelu, softplus)

    Returns:
        y: T[n,F], act(gate) up
    """
    return _add(graph, "glu", {"x": x}, 1, act=act)


@checked
def glu_dx(graph, dy, gate, up, *, act: Literal["silu", "gelu_tanh", "gelu_erf", "gelu_10", "relu", "tanh", "relu2",
        "laplace", "sigmoid", "quick_gelu", "softplus"]):
    """The gradients of a glu. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        dy: T[n,F], gradient of the result
        gate: T[n,F], the operand that is activated
        up: T[n,F], the operand that is gated
        act: the activation: gelu_tanh, gelu_erf and gelu_10 are the forms of gelu, others are operations (silu,
            gelu_tanh, gelu_erf, gelu_10, relu, tanh, relu2, laplace, sigmoid, quick_gelu, softplus)

    Returns:
        dgate: T[n,F], gradient of gate
        dup: T[n,F], gradient of up
    """
    return _add(graph, "glu_dx", {"dy": dy, "gate": gate, "up": up}, 2, act=act)


@checked
def glu_dx_packed(graph, dy, x, *, act: Literal["silu", "gelu_tanh", "gelu_erf", "gelu_10", "relu", "tanh", "relu2",
        "laplace", "sigmoid", "quick_gelu", "softplus"]):
    """The gradients of a glu. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        dy: T[n,F], gradient of the result
        x: T[n,2F], gate and up, side by side
        act: the activation: gelu_tanh, gelu_erf and gelu_10 are the forms of gelu, others are operations (silu,
            gelu_tanh, gelu_erf, gelu_10, relu, tanh, relu2, laplace, sigmoid, quick_gelu, softplus)

    Returns:
        dx: T[n,2F], gradient of x
    """
    return _add(graph, "glu_dx", {"dy": dy, "x": x}, 1, act=act)


@checked
def mul(graph, a, b):
    """The product of two tensors of one shape, element by element.

    Args:
        graph: the graph that the operation is added to
        a: T[any], first factor
        b: T[any], second factor

    Returns:
        y: T[any], a b
    """
    return _add(graph, "mul", {"a": a, "b": b}, 1)


@checked
def scale(graph, x, *, factor: float):
    """A tensor times a number, which is rounded to A first. Its gradient is the same operation.

    Args:
        graph: the graph that the operation is added to
        x: T[any], any tensor
        factor: the number

    Returns:
        y: T[any], x factor
    """
    return _add(graph, "scale", {"x": x}, 1, factor=factor)


@checked
def softcap(graph, x, *, cap: float):
    """Values bounded smoothly: cap tanh(x / cap).

    Args:
        graph: the graph that the operation is added to
        x: T[any], any tensor
        cap: the bound, > 0

    Returns:
        y: T[any], bounded values
    """
    return _add(graph, "softcap", {"x": x}, 1, cap=cap)


@checked
def softcap_dx(graph, dy, y, *, cap: float):
    """The gradient dy (1 - (y / cap)^2) of a softcap. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        dy: T[any], gradient of the result
        y: T[any], the result
        cap: the bound, > 0

    Returns:
        dx: T[any], gradient of x
    """
    return _add(graph, "softcap_dx", {"dy": dy, "y": y}, 1, cap=cap)


@checked
def attention(graph, q, k, v, mask = None, *, heads: int, seq: int, kv_heads: int = 0, causal: bool = True, window: int
        = 0, scale: float = 0.0, softcap: float = 0.0, per_head: bool = False, dropout: float = 0.0, op: Optional[int] =
        None, documents: bool = False):
    """Attention within sequences: softmax(scores) v for each row and head.

    Args:
        graph: the graph that the operation is added to
        q: T[n,HD], queries of H heads
        k: T[n,GD], keys of G heads
        v: T[n,GD], values of G heads
        mask: i32[n], rows where it is 0 are seen by no row; with documents it is begin
        heads: H, heads of queries
        seq: rows of a sequence
        kv_heads: G, heads of keys and values, a divisor of H; 0: H heads
        causal: 1: a row sees itself and rows before it, 0: its whole sequence
        window: number of rows that a row sees, itself included; 0: all; only for causal attention
        scale: factor of scores; 0: 1/sqrt(D)
        softcap: bound of scores; 0: none
        per_head: 1: qkv is q, k, v of head 0, then of head 1 and so on
        dropout: probability of dropping a weight in a training step, in [0, 1)
        op: number of the random stream of dropout, 0 to 65535; needed with dropout
        documents: 1: mask is begin, which holds for each row the first row of its document. Documents follow one
            another, each at most seq rows long; a row sees only its own document

    Returns:
        y: T[n,HD], weighted sums of values
        lse: A[H,n], logarithm of the sum of exp of the scores
    """
    return _add(graph, "attention", {"q": q, "k": k, "v": v, "mask": mask}, 2, optional=["mask"], heads=heads, seq=seq,
                kv_heads=kv_heads, causal=causal, window=window, scale=scale, softcap=softcap, per_head=per_head,
                dropout=dropout, op=op, documents=documents)


@checked
def attention_packed(graph, qkv, mask = None, *, heads: int, seq: int, kv_heads: int = 0, causal: bool = True, window:
        int = 0, scale: float = 0.0, softcap: float = 0.0, per_head: bool = False, dropout: float = 0.0, op:
        Optional[int] = None, documents: bool = False):
    """Attention within sequences: softmax(scores) v for each row and head.

    Args:
        graph: the graph that the operation is added to
        qkv: T[n,(H+2G)D], queries, keys and values, side by side
        mask: i32[n], rows where it is 0 are seen by no row; with documents it is begin
        heads: H, heads of queries
        seq: rows of a sequence
        kv_heads: G, heads of keys and values, a divisor of H; 0: H heads
        causal: 1: a row sees itself and rows before it, 0: its whole sequence
        window: number of rows that a row sees, itself included; 0: all; only for causal attention
        scale: factor of scores; 0: 1/sqrt(D)
        softcap: bound of scores; 0: none
        per_head: 1: qkv is q, k, v of head 0, then of head 1 and so on
        dropout: probability of dropping a weight in a training step, in [0, 1)
        op: number of the random stream of dropout, 0 to 65535; needed with dropout
        documents: 1: mask is begin, which holds for each row the first row of its document. Documents follow one
            another, each at most seq rows long; a row sees only its own document

    Returns:
        y: T[n,HD], weighted sums of values
        lse: A[H,n], logarithm of the sum of exp of the scores
    """
    return _add(graph, "attention", {"qkv": qkv, "mask": mask}, 2, optional=["mask"], heads=heads, seq=seq,
                kv_heads=kv_heads, causal=causal, window=window, scale=scale, softcap=softcap, per_head=per_head,
                dropout=dropout, op=op, documents=documents)


@checked
def attention_dx(graph, dy, q, k, v, y, lse, mask = None, *, heads: int, seq: int, kv_heads: int = 0, causal: bool =
        True, window: int = 0, scale: float = 0.0, softcap: float = 0.0, per_head: bool = False, dropout: float = 0.0,
        op: Optional[int] = None, documents: bool = False):
    """The gradients of an attention. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        dy: T[n,HD], gradient of y
        q: T[n,HD], queries of H heads
        k: T[n,GD], keys of G heads
        v: T[n,GD], values of G heads
        y: T[n,HD], weighted sums of values
        lse: A[H,n], logarithm of the sum of exp of the scores
        mask: i32[n], rows where it is 0 are seen by no row; with documents it is begin
        heads: H, heads of queries
        seq: rows of a sequence
        kv_heads: G, heads of keys and values, a divisor of H; 0: H heads
        causal: 1: a row sees itself and rows before it, 0: its whole sequence
        window: number of rows that a row sees, itself included; 0: all; only for causal attention
        scale: factor of scores; 0: 1/sqrt(D)
        softcap: bound of scores; 0: none
        per_head: 1: qkv is q, k, v of head 0, then of head 1 and so on
        dropout: probability of dropping a weight in a training step, in [0, 1)
        op: number of the random stream of dropout, 0 to 65535; needed with dropout
        documents: 1: mask is begin, which holds for each row the first row of its document. Documents follow one
            another, each at most seq rows long; a row sees only its own document

    Returns:
        dq: T[n,HD], gradient of q
        dk: T[n,GD], gradient of k
        dv: T[n,GD], gradient of v
    """
    return _add(graph, "attention_dx", {"dy": dy, "q": q, "k": k, "v": v, "mask": mask, "y": y, "lse": lse}, 3,
                optional=["mask"], heads=heads, seq=seq, kv_heads=kv_heads, causal=causal, window=window, scale=scale,
                softcap=softcap, per_head=per_head, dropout=dropout, op=op, documents=documents)


@checked
def attention_dx_packed(graph, dy, qkv, y, lse, mask = None, *, heads: int, seq: int, kv_heads: int = 0, causal: bool =
        True, window: int = 0, scale: float = 0.0, softcap: float = 0.0, per_head: bool = False, dropout: float = 0.0,
        op: Optional[int] = None, documents: bool = False):
    """The gradients of an attention. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        dy: T[n,HD], gradient of y
        qkv: T[n,(H+2G)D], queries, keys and values, side by side
        y: T[n,HD], weighted sums of values
        lse: A[H,n], logarithm of the sum of exp of the scores
        mask: i32[n], rows where it is 0 are seen by no row; with documents it is begin
        heads: H, heads of queries
        seq: rows of a sequence
        kv_heads: G, heads of keys and values, a divisor of H; 0: H heads
        causal: 1: a row sees itself and rows before it, 0: its whole sequence
        window: number of rows that a row sees, itself included; 0: all; only for causal attention
        scale: factor of scores; 0: 1/sqrt(D)
        softcap: bound of scores; 0: none
        per_head: 1: qkv is q, k, v of head 0, then of head 1 and so on
        dropout: probability of dropping a weight in a training step, in [0, 1)
        op: number of the random stream of dropout, 0 to 65535; needed with dropout
        documents: 1: mask is begin, which holds for each row the first row of its document. Documents follow one
            another, each at most seq rows long; a row sees only its own document

    Returns:
        dqkv: T[n,(H+2G)D], gradient of qkv
    """
    return _add(graph, "attention_dx", {"dy": dy, "qkv": qkv, "mask": mask, "y": y, "lse": lse}, 1, optional=["mask"],
                heads=heads, seq=seq, kv_heads=kv_heads, causal=causal, window=window, scale=scale, softcap=softcap,
                per_head=per_head, dropout=dropout, op=op, documents=documents)


@checked
def cached_attention(graph, q, k, v, positions, cache, *, heads: int, kv_heads: int = 0, window: int = 0, scale: float =
        0.0, softcap: float = 0.0, per_head: bool = False):
    """Causal attention of some rows of a text to all rows so far: writes their keys and values to the cache, then reads
    the cache. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        q: T[n,HD], queries of H heads
        k: T[n,GD], keys of G heads
        v: T[n,GD], values of G heads
        positions: i32[n], position of each row in the text, below P; all are different
        cache: T[2G,P,D], keys, then values, of the P positions of a text
        heads: H, heads of queries
        kv_heads: G, heads of keys and values, a divisor of H; 0: H heads
        window: number of rows that a row sees, itself included; 0: all; only for causal attention
        scale: factor of scores; 0: 1/sqrt(D)
        softcap: bound of scores; 0: none
        per_head: 1: qkv is q, k, v of head 0, then of head 1 and so on

    Returns:
        y: T[n,HD], weighted sums of values
        cache: T[2G,P,D], keys, then values, of the P positions of a text
    """
    return _add(graph, "cached_attention", {"q": q, "k": k, "v": v, "positions": positions, "cache": cache}, 2,
                heads=heads, kv_heads=kv_heads, window=window, scale=scale, softcap=softcap, per_head=per_head)


@checked
def cached_attention_packed(graph, qkv, positions, cache, *, heads: int, kv_heads: int = 0, window: int = 0, scale:
        float = 0.0, softcap: float = 0.0, per_head: bool = False):
    """Causal attention of some rows of a text to all rows so far: writes their keys and values to the cache, then reads
    the cache. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        qkv: T[n,(H+2G)D], queries, keys and values, side by side
        positions: i32[n], position of each row in the text, below P; all are different
        cache: T[2G,P,D], keys, then values, of the P positions of a text
        heads: H, heads of queries
        kv_heads: G, heads of keys and values, a divisor of H; 0: H heads
        window: number of rows that a row sees, itself included; 0: all; only for causal attention
        scale: factor of scores; 0: 1/sqrt(D)
        softcap: bound of scores; 0: none
        per_head: 1: qkv is q, k, v of head 0, then of head 1 and so on

    Returns:
        y: T[n,HD], weighted sums of values
        cache: T[2G,P,D], keys, then values, of the P positions of a text
    """
    return _add(graph, "cached_attention", {"qkv": qkv, "positions": positions, "cache": cache}, 2, heads=heads,
                kv_heads=kv_heads, window=window, scale=scale, softcap=softcap, per_head=per_head)


@checked
def rope(graph, x, positions = None, length = None, *, heads: int, seq: int, theta: float, dims: int = 0, period:
        Optional[int] = None, rotated: Optional[int] = None, interleaved: bool = False, inverse: bool = False, scaling:
        Literal["none", "linear", "dynamic", "llama3", "yarn", "longrope"] = "none", factor: Optional[float] = None,
        low: Optional[float] = None, high: Optional[float] = None, original: Optional[int] = None, power:
        Optional[float] = None, factors: Optional[str] = None, long_factors: Optional[str] = None, magnitude: float =
        0.0, truncate: bool = True):
    """Rotary positions: rotates pairs of columns of each head by angles that grow with the position of the row.

    Args:
        graph: the graph that the operation is added to
        x: T[n,H*D], rows of H heads
        positions: i32[n], position of each row; r mod seq if absent
        length: i32[1], length of the text; seq if absent
        heads: H
        seq: rows of a sequence
        theta: base of the angles, > 1
        dims: columns of a head that are rotated; 0: all
        period: a head is rotated if its number modulo period is below rotated; heads if absent
        rotated: see period; period if absent
        interleaved: 1: the columns of a pair are neighbours; 0: they are dims/2 apart
        inverse: 1: rotates by the opposite angles
        scaling: how angles are changed for longer texts (none, linear, dynamic, llama3, yarn, longrope)
        factor: for every scaling except none and longrope, > 0
        low: for llama3 and yarn, > 0
        high: for llama3 and yarn, > 0
        original: length of texts before scaling; for dynamic, llama3 and yarn, and for longrope with long_factors
        power: for dynamic
        factors: for longrope: dims/2 numbers > 0 with blanks between them
        long_factors: for longrope: factors for texts longer than original
        magnitude: factor of the result; 0: the factor that the scaling defines
        truncate: for yarn: 1 rounds the first and the last scaled pair to whole ones

    Returns:
        y: T[n,H*D], rotated rows
    """
    return _add(graph, "rope", {"x": x, "positions": positions, "length": length}, 1, optional=["positions", "length"],
                heads=heads, seq=seq, theta=theta, dims=dims, period=period, rotated=rotated, interleaved=interleaved,
                inverse=inverse, scaling=scaling, factor=factor, low=low, high=high, original=original, power=power,
                factors=factors, long_factors=long_factors, magnitude=magnitude, truncate=truncate)


@checked
def softmax(graph, x, *, log: bool = False):
    """The softmax exp(x) / sum exp(x) of each row, or its logarithm.

    Args:
        graph: the graph that the operation is added to
        x: T[n,C], rows
        log: 1: the logarithm of the softmax

    Returns:
        y: T[n,C], a distribution for each row
    """
    return _add(graph, "softmax", {"x": x}, 1, log=log)


@checked
def causal_softmax(graph, x, *, seq: int):
    """The softmax of the columns 0 to r mod seq of each row r; the other columns are 0.

    Args:
        graph: the graph that the operation is added to
        x: T[n,C], rows
        seq: rows of a sequence

    Returns:
        y: T[n,C], a distribution for each row
    """
    return _add(graph, "causal_softmax", {"x": x}, 1, seq=seq)


@checked
def softmax_dx(graph, dy, y, *, log: bool = False):
    """The gradient y (dy - sum dy y) of the rows of a softmax or causal_softmax, or dy - exp(y) sum dy if y is the
    logarithm. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        dy: T[n,C], gradient of the result
        y: T[n,C], the result
        log: 1: the logarithm of the softmax

    Returns:
        dx: T[n,C], gradient of x
    """
    return _add(graph, "softmax_dx", {"dy": dy, "y": y}, 1, log=log)


@checked
def top_gates(graph, logits, *, k: int, normalize: bool = True):
    """The softmax of each row at its k largest logits, and 0 elsewhere; of equal logits, those of lower index are
    chosen.

    Args:
        graph: the graph that the operation is added to
        logits: T[n,E], a score for each of E experts
        k: experts of a row, at most E
        normalize: 1: the weights of a row are divided by their sum

    Returns:
        gates: T[n,E], weights of the experts
    """
    return _add(graph, "top_gates", {"logits": logits}, 1, k=k, normalize=normalize)


@checked
def top_gates_dx(graph, dy, logits, *, k: int, normalize: bool = True):
    """The gradient of the logits of a top_gates, for a fixed choice. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        dy: T[n,E], gradient of the gates
        logits: T[n,E], a score for each of E experts
        k: experts of a row, at most E
        normalize: 1: the weights of a row are divided by their sum

    Returns:
        dlogits: T[n,E], gradient of logits
    """
    return _add(graph, "top_gates_dx", {"dy": dy, "logits": logits}, 1, k=k, normalize=normalize)


@checked
def scale_rows(graph, x, gates, *, column: int):
    """Each row times its element of one column of gates: y[r] = x[r] gates[r, column].

    Args:
        graph: the graph that the operation is added to
        x: T[n,C], rows
        gates: T[n,E], weights of the experts
        column: index of the expert, below E

    Returns:
        y: T[n,C], scaled rows
    """
    return _add(graph, "scale_rows", {"x": x, "gates": gates}, 1, column=column)


@checked
def scale_rows_dw(graph, dy, x, *, columns: int, column: int):
    """The gradient of the gates of a scale_rows: the product of dy[r] and x[r] in its column, 0 in the others. Not
    differentiable.

    Args:
        graph: the graph that the operation is added to
        dy: T[n,C], gradient of the result
        x: T[n,C], rows
        columns: E
        column: index of the expert, below E

    Returns:
        dgates: T[n,E], gradient of gates
    """
    return _add(graph, "scale_rows_dw", {"dy": dy, "x": x}, 1, columns=columns, column=column)


@checked
def load_balance(graph, logits: Sequence, mask = None, *, k: int):
    """E times the sum of f p over the experts, where, over the rows of all layers, f is the share of rows that have the
    expert among their k largest and p the mean of its softmax.

    Args:
        graph: the graph that the operation is added to
        logits: T[n,E], scores of each layer, one operand for each
        mask: i32[n], rows where it is 0 do not count
        k: experts of a row, at most E

    Returns:
        loss: A[], k if all experts are used equally
    """
    return _add(graph, "load_balance", {"logits": logits, "mask": mask}, 1, optional=["mask"], several="logits", k=k)


@checked
def load_balance_dx(graph, dloss, logits: Sequence, mask = None, *, k: int):
    """The gradients of the logits of a load_balance, for fixed choices. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        dloss: A[], gradient of the loss
        logits: T[n,E], scores of each layer, one operand for each
        mask: i32[n], rows where it is 0 do not count
        k: experts of a row, at most E

    Returns:
        dlogits: T[n,E], gradient of each of the logits
    """
    return _add(graph, "load_balance_dx", {"dloss": dloss, "logits": logits, "mask": mask}, None, optional=["mask"],
                several="logits", k=k)


@checked
def add(graph, a, b):
    """The sum of two tensors of one shape.

    Args:
        graph: the graph that the operation is added to
        a: T[any], first summand
        b: T[any], second summand

    Returns:
        y: T[any], a + b
    """
    return _add(graph, "add", {"a": a, "b": b}, 1)


@checked
def dropout(graph, x, *, p: float, op: int):
    """In a training step each element becomes 0 with probability p, and the others are multiplied by 1 / (1 - p). Its
    gradient is the same operation.

    Args:
        graph: the graph that the operation is added to
        x: T[any], any tensor
        p: probability of dropping an element, in [0, 1)
        op: number of the random stream, 0 to 65535, different from those of other dropouts and of parameters

    Returns:
        y: T[any], x with elements dropped
    """
    return _add(graph, "dropout", {"x": x}, 1, p=p, op=op)


@checked
def layerdrop(graph, x, y, *, p: float, op: int):
    """The result of a layer or, with probability p in a training step, its input; one draw decides for all rows of the
    micro-batch.

    Args:
        graph: the graph that the operation is added to
        x: T[any], input of the layer
        y: T[any], its result
        p: probability of leaving the layer out, in [0, 1)
        op: number of the random stream, 0 to 65535, different from those of dropouts and of parameters

    Returns:
        z: T[any], x if the layer is left out, otherwise y
    """
    return _add(graph, "layerdrop", {"x": x, "y": y}, 1, p=p, op=op)


@checked
def layerdrop_dx(graph, dz, *, p: float, op: int):
    """The gradients of a layerdrop: dz for the operand that was the result, 0 for the other. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        dz: T[any], gradient of the result
        p: probability of leaving the layer out, in [0, 1)
        op: number of the random stream, 0 to 65535, different from those of dropouts and of parameters

    Returns:
        dx: T[any], gradient of x
        dy: T[any], gradient of y
    """
    return _add(graph, "layerdrop_dx", {"dz": dz}, 2, p=p, op=op)


@checked
def fill(graph, *, value: float, dtype: Literal["f32", "bf16", "f16", "f64"], loss_scale: int = 0):
    """A scalar of a given value: the seed of gradients. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        value: the value
        dtype: element type of the result (f32, bf16, f16, f64)
        loss_scale: 1: the value times the loss scale of the step

    Returns:
        y: T[], the value
    """
    return _add(graph, "fill", {}, 1, value=value, dtype=dtype, loss_scale=loss_scale)


@checked
def cast(graph, x, *, dtype: Literal["f32", "bf16", "f16", "f64"]):
    """The same values in another floating type, rounded to the nearest, ties to even.

    Args:
        graph: the graph that the operation is added to
        x: T[any], any tensor
        dtype: element type of the result (f32, bf16, f16, f64)

    Returns:
        y: [any], x in the type dtype
    """
    return _add(graph, "cast", {"x": x}, 1, dtype=dtype)


@checked
def cross_entropy(graph, logits, targets, *, label_smoothing: float = 0.0, z_loss: float = 0.0, reduction:
        Literal["mean", "sum", "none"] = "mean"):
    """The mean over rows with a target of -log p, where p is the softmax of the row at its target; 0 without such rows.
    Attributes change the loss of a row, or how losses are combined.

    Args:
        graph: the graph that the operation is added to
        logits: T[n,V], a score for each word
        targets: i32[n], the right word of each row; -100: the row has none
        label_smoothing: e in [0, 1]: the loss of a row is (1 - e) (-log p at its target) + e (mean over words of -log
            p)
        z_loss: z >= 0: adds z (log of the sum of exp(logits))^2 to the loss of a row
        reduction: the mean or the sum of the losses of rows with a target, or a loss for each row (mean, sum, none)

    Returns:
        loss: A[], the loss; A[n] with reduction "none", 0 in rows without a target
        stats: A[n,2], statistics of each row's softmax for the backward part
    """
    return _add(graph, "cross_entropy", {"logits": logits, "targets": targets}, 2, label_smoothing=label_smoothing,
                z_loss=z_loss, reduction=reduction)


@checked
def cross_entropy_dx(graph, dloss, logits, targets, stats, *, label_smoothing: float = 0.0, z_loss: float = 0.0,
        reduction: Literal["mean", "sum", "none"] = "mean"):
    """The gradient of the logits of a cross_entropy. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        dloss: A[], gradient of the loss; A[n] with reduction "none"
        logits: T[n,V], a score for each word
        targets: i32[n], the right word of each row; -100: the row has none
        stats: A[n,2], statistics of each row's softmax for the backward part
        label_smoothing: e in [0, 1]: the loss of a row is (1 - e) (-log p at its target) + e (mean over words of -log
            p)
        z_loss: z >= 0: adds z (log of the sum of exp(logits))^2 to the loss of a row
        reduction: the mean or the sum of the losses of rows with a target, or a loss for each row (mean, sum, none)

    Returns:
        dlogits: T[n,V], gradient of logits
    """
    return _add(graph, "cross_entropy_dx", {"dloss": dloss, "logits": logits, "targets": targets, "stats": stats}, 1,
                label_smoothing=label_smoothing, z_loss=z_loss, reduction=reduction)


@checked
def linear_cross_entropy(graph, x, w, targets, *, label_smoothing: float = 0.0, z_loss: float = 0.0, reduction:
        Literal["mean", "sum", "none"] = "mean", kept: int = 0):
    """The cross_entropy of x w^T. The logits are computed in blocks of at most 1024 words and neither rounded nor kept,
    or are kept as a whole.

    Args:
        graph: the graph that the operation is added to
        x: T[n,C], rows
        w: T[V,C], a row for each word
        targets: i32[n], the right word of each row; -100: the row has none
        label_smoothing: e in [0, 1]: the loss of a row is (1 - e) (-log p at its target) + e (mean over words of -log
            p)
        z_loss: z >= 0: adds z (log of the sum of exp(logits))^2 to the loss of a row
        reduction: the mean or the sum of the losses of rows with a target, or a loss for each row (mean, sum, none)
        kept: 1: the logits are rounded to T and kept for the backward part; 0: the backward part computes them again

    Returns:
        loss: A[], the loss; A[n] with reduction "none", 0 in rows without a target
        stats: A[n,2], statistics of each row's softmax for the backward part
    """
    return _add(graph, "linear_cross_entropy", {"x": x, "w": w, "targets": targets}, 2, label_smoothing=label_smoothing,
                z_loss=z_loss, reduction=reduction, kept=kept)


@checked
def linear_cross_entropy_dx(graph, dloss, x, w, targets, stats, *, label_smoothing: float = 0.0, z_loss: float = 0.0,
        reduction: Literal["mean", "sum", "none"] = "mean", kept: int = 0):
    """The gradients of a linear_cross_entropy. Logits that were not kept are computed again in blocks, and dx is summed
    over the blocks in A. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        dloss: A[], gradient of the loss; A[n] with reduction "none"
        x: T[n,C], rows
        w: T[V,C], a row for each word
        targets: i32[n], the right word of each row; -100: the row has none
        stats: A[n,2], statistics of each row's softmax for the backward part
        label_smoothing: e in [0, 1]: the loss of a row is (1 - e) (-log p at its target) + e (mean over words of -log
            p)
        z_loss: z >= 0: adds z (log of the sum of exp(logits))^2 to the loss of a row
        reduction: the mean or the sum of the losses of rows with a target, or a loss for each row (mean, sum, none)
        kept: 1: the logits are rounded to T and kept for the backward part; 0: the backward part computes them again

    Returns:
        dx: T[n,C], gradient of x
        dw: T[V,C], gradient of w
    """
    return _add(graph, "linear_cross_entropy_dx", {"dloss": dloss, "x": x, "w": w, "targets": targets, "stats": stats},
                2, label_smoothing=label_smoothing, z_loss=z_loss, reduction=reduction, kept=kept)


@checked
def linear_cross_entropy_dx_kept(graph, dloss, x, w, targets, stats, logits, *, label_smoothing: float = 0.0, z_loss:
        float = 0.0, reduction: Literal["mean", "sum", "none"] = "mean", kept: int = 0):
    """The gradients of a linear_cross_entropy. Logits that were not kept are computed again in blocks, and dx is summed
    over the blocks in A. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        dloss: A[], gradient of the loss; A[n] with reduction "none"
        x: T[n,C], rows
        w: T[V,C], a row for each word
        targets: i32[n], the right word of each row; -100: the row has none
        stats: A[n,2], statistics of each row's softmax for the backward part
        logits: T[n,P], the logits that the forward part keeps with {kept=1}; P is V rounded up to a multiple of 8
        label_smoothing: e in [0, 1]: the loss of a row is (1 - e) (-log p at its target) + e (mean over words of -log
            p)
        z_loss: z >= 0: adds z (log of the sum of exp(logits))^2 to the loss of a row
        reduction: the mean or the sum of the losses of rows with a target, or a loss for each row (mean, sum, none)
        kept: 1: the logits are rounded to T and kept for the backward part; 0: the backward part computes them again

    Returns:
        dx: T[n,C], gradient of x
        dw: T[V,C], gradient of w
    """
    return _add(graph, "linear_cross_entropy_dx", {"dloss": dloss, "x": x, "w": w, "targets": targets, "stats": stats,
                "logits": logits}, 2, label_smoothing=label_smoothing, z_loss=z_loss, reduction=reduction, kept=kept)


@checked
def count_targets(graph, targets):
    """The number of rows with a target, as cross_entropy counts them. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        targets: i32[n], the right word of each row; -100: the row has none

    Returns:
        count: f32[], the number of rows with a target
    """
    return _add(graph, "count_targets", {"targets": targets}, 1)


@checked
def mse(graph, x, target):
    """The mean of (x - target)^2 over all elements, added in order in f64.

    Args:
        graph: the graph that the operation is added to
        x: T[any], any tensor
        target: T[any], the wanted values of x

    Returns:
        loss: A[], the loss
    """
    return _add(graph, "mse", {"x": x, "target": target}, 1)


@checked
def mse_dx(graph, dloss, x, target):
    """The gradient 2 dloss (x - target) / elements of x in an mse. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        dloss: A[], gradient of the loss
        x: T[any], any tensor
        target: T[any], the wanted values of x

    Returns:
        dx: T[any], gradient of x
    """
    return _add(graph, "mse_dx", {"dloss": dloss, "x": x, "target": target}, 1)


@checked
def preference_loss(graph, losses, targets, *, rows: int, loss: Literal["sigmoid", "hinge", "ipo", "odds", "simpo"] =
        "sigmoid", beta: float = 0.1, label_smoothing: float = 0.0, margin: float = 0.0):
    """The mean over pairs of a loss of the chosen text c and the rejected text r. With L and R the sums of losses and
    reference over the N targets of a text, s = R - L and a = -L / N: sigmoid is -(1 - e) log sigmoid(z) - e log
    sigmoid(-z) of z = b (s_c - s_r), hinge is max(0, 1 - z), ipo is (s_c / N_c - s_r / N_r - 1 / (2 b))^2, odds is -b
    log sigmoid(o_c - o_r) of the log odds o = a - log(1 - exp(a)), and simpo is like sigmoid for z = b (a_c - a_r) - g.
    The reward of a text is b s, or b a without a reference. A pair without any target is padding and does not count.

    Args:
        graph: the graph that the operation is added to
        losses: A[n], the loss -log p of each row: a cross_entropy with reduction "none"
        targets: i32[n], the right word of each row; -100: the row has none
        rows: rows of a text; chosen and rejected texts take turns
        loss: how a pair is judged (sigmoid, hinge, ipo, odds, simpo)
        beta: b > 0, the strength of the preference
        label_smoothing: e in [0, 1]: the share of pairs whose order is taken to be wrong, with sigmoid and simpo
        margin: the margin g of simpo

    Returns:
        loss: A[], the loss
        rewards: A[4], means over pairs: the reward of the chosen and of the rejected text, the share of pairs whose
            chosen text has the larger one, and the difference of both
    """
    return _add(graph, "preference_loss", {"losses": losses, "targets": targets}, 2, rows=rows, loss=loss, beta=beta,
                label_smoothing=label_smoothing, margin=margin)


@checked
def preference_loss_reference(graph, losses, targets, reference, *, rows: int, loss: Literal["sigmoid", "hinge", "ipo",
        "odds", "simpo"] = "sigmoid", beta: float = 0.1, label_smoothing: float = 0.0, margin: float = 0.0):
    """The mean over pairs of a loss of the chosen text c and the rejected text r. With L and R the sums of losses and
    reference over the N targets of a text, s = R - L and a = -L / N: sigmoid is -(1 - e) log sigmoid(z) - e log
    sigmoid(-z) of z = b (s_c - s_r), hinge is max(0, 1 - z), ipo is (s_c / N_c - s_r / N_r - 1 / (2 b))^2, odds is -b
    log sigmoid(o_c - o_r) of the log odds o = a - log(1 - exp(a)), and simpo is like sigmoid for z = b (a_c - a_r) - g.
    The reward of a text is b s, or b a without a reference. A pair without any target is padding and does not count.

    Args:
        graph: the graph that the operation is added to
        losses: A[n], the loss -log p of each row: a cross_entropy with reduction "none"
        targets: i32[n], the right word of each row; -100: the row has none
        reference: A[n], the losses of the same rows in the reference model
        rows: rows of a text; chosen and rejected texts take turns
        loss: how a pair is judged (sigmoid, hinge, ipo, odds, simpo)
        beta: b > 0, the strength of the preference
        label_smoothing: e in [0, 1]: the share of pairs whose order is taken to be wrong, with sigmoid and simpo
        margin: the margin g of simpo

    Returns:
        loss: A[], the loss
        rewards: A[4], means over pairs: the reward of the chosen and of the rejected text, the share of pairs whose
            chosen text has the larger one, and the difference of both
    """
    return _add(graph, "preference_loss", {"losses": losses, "targets": targets, "reference": reference}, 2, rows=rows,
                loss=loss, beta=beta, label_smoothing=label_smoothing, margin=margin)


@checked
def preference_loss_dx(graph, dloss, losses, targets, *, rows: int, loss: Literal["sigmoid", "hinge", "ipo", "odds",
        "simpo"] = "sigmoid", beta: float = 0.1, label_smoothing: float = 0.0, margin: float = 0.0):
    """The gradients of the losses and the reference of a preference_loss. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        dloss: A[], gradient of the loss
        losses: A[n], the loss -log p of each row: a cross_entropy with reduction "none"
        targets: i32[n], the right word of each row; -100: the row has none
        rows: rows of a text; chosen and rejected texts take turns
        loss: how a pair is judged (sigmoid, hinge, ipo, odds, simpo)
        beta: b > 0, the strength of the preference
        label_smoothing: e in [0, 1]: the share of pairs whose order is taken to be wrong, with sigmoid and simpo
        margin: the margin g of simpo

    Returns:
        dlosses: A[n], gradient of losses
    """
    return _add(graph, "preference_loss_dx", {"dloss": dloss, "losses": losses, "targets": targets}, 1, rows=rows,
                loss=loss, beta=beta, label_smoothing=label_smoothing, margin=margin)


@checked
def preference_loss_dx_reference(graph, dloss, losses, targets, reference, *, rows: int, loss: Literal["sigmoid",
        "hinge", "ipo", "odds", "simpo"] = "sigmoid", beta: float = 0.1, label_smoothing: float = 0.0, margin: float =
        0.0):
    """The gradients of the losses and the reference of a preference_loss. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        dloss: A[], gradient of the loss
        losses: A[n], the loss -log p of each row: a cross_entropy with reduction "none"
        targets: i32[n], the right word of each row; -100: the row has none
        reference: A[n], the losses of the same rows in the reference model
        rows: rows of a text; chosen and rejected texts take turns
        loss: how a pair is judged (sigmoid, hinge, ipo, odds, simpo)
        beta: b > 0, the strength of the preference
        label_smoothing: e in [0, 1]: the share of pairs whose order is taken to be wrong, with sigmoid and simpo
        margin: the margin g of simpo

    Returns:
        dlosses: A[n], gradient of losses
        dreference: A[n], gradient of reference
    """
    return _add(graph, "preference_loss_dx", {"dloss": dloss, "losses": losses, "targets": targets, "reference":
                reference}, 2, rows=rows, loss=loss, beta=beta, label_smoothing=label_smoothing, margin=margin)


@checked
def dora_norm(graph, w, a, b, *, factor: float, transposed: bool = False):
    """The Euclidean norms of the rows of an adapted weight w + factor b a. Its gradient counts as 0. Not
    differentiable.

    Args:
        graph: the graph that the operation is added to
        w: T[O,I], weight
        a: T[R,I], first matrix of the adapter
        b: T[O,R], second matrix of the adapter
        factor: factor of the product b a
        transposed: 1: the weight is stored as T[I,O]

    Returns:
        norms: T[O], norm of each row
    """
    return _add(graph, "dora_norm", {"w": w, "a": a, "b": b}, 1, factor=factor, transposed=transposed)


@checked
def dora(graph, base, product, m, norms, b = None):
    """The values that an adapter with magnitudes adds to the result of a linear: with c = m / norms, (c - 1) (base - b)
    + c product. norms counts as a constant.

    Args:
        graph: the graph that the operation is added to
        base: T[n,O], products of rows and the weight, plus the bias
        product: T[n,O], products of rows and the adapter
        m: T[O], magnitude of each output
        norms: T[O], results of dora_norm
        b: T[O], bias in base

    Returns:
        y: T[n,O], the sums
    """
    return _add(graph, "dora", {"base": base, "product": product, "m": m, "norms": norms, "b": b}, 1, optional=["b"])


@checked
def dora_dx(graph, dy, m, norms):
    """The gradients (c - 1) dy and c dy of base and product of a dora. Not differentiable.

    Args:
        graph: the graph that the operation is added to
        dy: T[n,O], gradient of the result
        m: T[O], magnitude of each output
        norms: T[O], results of dora_norm

    Returns:
        dbase: T[n,O], gradient of base
        dproduct: T[n,O], gradient of product
    """
    return _add(graph, "dora_dx", {"dy": dy, "m": m, "norms": norms}, 2)


@checked
def dora_dm(graph, dy, base, product, norms, b = None):
    """The gradient of the magnitudes of a dora: the sum over rows of dy (base - b + product) / norms. Not
    differentiable.

    Args:
        graph: the graph that the operation is added to
        dy: T[n,O], gradient of the result
        base: T[n,O], products of rows and the weight, plus the bias
        product: T[n,O], products of rows and the adapter
        norms: T[O], results of dora_norm
        b: T[O], bias in base

    Returns:
        dm: T[O], gradient of m
    """
    return _add(graph, "dora_dm", {"dy": dy, "base": base, "product": product, "norms": norms, "b": b}, 1,
                optional=["b"])
