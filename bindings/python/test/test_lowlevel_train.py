"""A two-layer perceptron trained through the Python module; errors arrive as exceptions."""
import array
import json

import libds
import libds.lowlevel as ds


def mlp():
    graph = ds.graph_create("mlp", 8)
    x = ds.graph_input(graph, "x", ds.DTYPE_F32, [-1, 3])
    y = ds.graph_input(graph, "y", ds.DTYPE_F32, [-1, 1])
    w1 = ds.graph_param(graph, "w1", [16, 3], "normal", 0.5)
    b1 = ds.graph_param(graph, "b1", [16], "zeros", 0)
    w2 = ds.graph_param(graph, "w2", [1, 16], "normal", 0.5)
    hidden = ds.graph_op(graph, "gelu", [ds.graph_op(graph, "linear", [x, w1, b1], None)], None)
    out = ds.graph_op(graph, "linear", [hidden, w2], None)
    loss = ds.graph_op(graph, "mse", [out, y], None)
    ds.graph_output(graph, "loss", loss)
    ds.graph_output(graph, "prediction", out)
    return graph, loss, w1


def tensor(rows, columns, values):
    made = ds.tensor_create(ds.DTYPE_F32, [rows, columns])
    made.memory().cast("f")[:] = array.array("f", values)
    return made


graph, loss_value, w1 = mlp()
config = {"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 0.02}}}
options = ds.engine_options()
options.threads = 1
engine = ds.engine_create(None, json.dumps(config), graph, options)

points = [((i * 7 + k * 5) % 11) / 5 - 1 for i in range(8) for k in range(3)]
answers = [points[3 * i] * points[3 * i + 1] for i in range(8)]
inputs = [tensor(8, 3, points), tensor(8, 1, answers)]
first = ds.train_batch(engine, inputs)
for _ in range(150):
    loss = ds.train_batch(engine, inputs)
assert loss < first / 10, (first, loss)
assert ds.engine_get(engine, "step") == 151
assert ds.tensor_info(ds.infer(engine, inputs)) == [ds.DTYPE_F32, [8, 1]]

index = ds.engine_param_find(engine, "b1")
assert ds.engine_param_info(engine, index) == ["b1", [16]]
bias = array.array("f", [0] * 16)
ds.engine_read(engine, index, "master", bias)
assert any(bias)
ds.engine_write(engine, index, "master", array.array("f", [0.25] * 16))
ds.engine_read(engine, index, "master", bias)
assert list(bias) == [0.25] * 16
assert ds.engine_local_range(engine, index) == [0, 16]
ds.engine_write_local(engine, index, "master", array.array("f", [0.5] * 16))
ds.engine_refresh(engine)
ds.engine_freeze(engine, array.array("i", [index]), 1)
ds.train_batch(engine, inputs)
ds.engine_read(engine, index, "param", bias)
assert list(bias) == [0.5] * 16
ds.engine_freeze(engine, array.array("i", [index]), 0)

assert ds.engine_state_name(engine, 0) == "master" and ds.engine_state_name(engine, 9) is None
assert ds.engine_group_add(engine, [index], '{"lr": 0, "weight_decay": 0}') == 1
ds.engine_set(engine, "param_groups[1].lr", 0.5)
assert ds.engine_get(engine, "param_groups[1].lr") == 0.5
try:
    ds.engine_group_add(engine, [index], '{"lt": 1}')
    raise AssertionError("an unknown number was accepted")
except libds.Error as error:
    assert error.key == "options.lt" and error.tensor is None and error.rank is None, error

last = ds.engine_last_step(engine)
assert last["step"] == last["updates"] > 0 and last["loss"] > 0 and not last["skipped"] and ds.engine_skip_reason(engine) == "", last

try:
    ds.engine_param_find(engine, "b11")
    raise AssertionError("an unknown name was found")
except libds.Error as error:
    assert error.status == ds.ERROR_NOT_FOUND and "b1" in error.message, error
try:
    ds.train_batch(engine, [1, 2])
    raise AssertionError("integers are no tensors")
except TypeError:
    pass

assert "adamw" in ds.engine_plan_print(engine)
(grad,) = ds.graph_grad(graph, loss_value, [w1])
assert grad > loss_value and "gelu_dx" in ds.graph_print(graph)
print("loss", first, "->", loss)
