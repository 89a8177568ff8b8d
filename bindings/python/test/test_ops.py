"""The functions of libds.ops make the graph that operations by name make."""
import inspect

import libds
from libds import Graph, ops


def begin():
    g = Graph("g", 16)
    return (g, g.input("x", "float32", [None, 12]), g.param("w", [12, 12], "normal", 0.5), g.param("b", [12]),
            g.input("mask", "int32", [None]))


def by_name():
    g, x, w, b, mask = begin()
    y = g.op("linear", x, w, b)
    y = g.op("rms_norm", y, b, eps=1e-5, offset=1)
    y = g.op("gelu", y, form="erf")
    y = g.op("dropout", y, p=0.5, op=3)
    y = g.op("attention", y, mask, heads=2, seq=8, causal=0, scale=0.1)
    g.op("load_balance", y, y, mask, k=2)
    return str(g)


def by_function():
    g, x, w, b, mask = begin()
    y = ops.linear(g, x, w, b, transposed=False)
    y, rstd = ops.rms_norm(g, y, b, eps=1e-5, offset=True)
    assert rstd.index == y.index + 1
    y = ops.gelu(g, y, form="erf")
    y = ops.dropout(g, y, p=0.5, op=3)
    y, lse = ops.attention_packed(g, y, mask, heads=2, seq=8, causal=False, scale=0.1)
    ops.load_balance(g, [y, y], mask, k=2)
    try:
        ops.gelu(g, y, form='"erf')
    except libds.Error as error:
        assert "must be one of tanh erf 10, got text '\"erf'" in str(error), error
    else:
        raise AssertionError("a form that is none was taken")
    return str(g)


assert by_function() == by_name(), by_function()
for name in ops.__all__:
    assert "Args:" in inspect.getdoc(getattr(ops, name)), name
