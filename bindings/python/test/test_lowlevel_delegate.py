"""Linear regression with gradients made in Python; libds keeps and updates the parameters."""
import array
import json

import libds
import libds.lowlevel as ds

config = {
    "train_batch_size": 16,
    "optimizer": {"type": "Adam", "params": {"lr": 0.05}},
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
}
engine = ds.engine_create(None, json.dumps(config), None, None)
w = ds.engine_param_add(engine, "w", 0, [2])
b = ds.engine_param_add(engine, "b", 0, [1])
ds.engine_start(engine)
rows = [(i % 5 - 2, i % 3 - 1) for i in range(16)]
truth = [3 * x0 - 2 * x1 + 1 for x0, x1 in rows]


def gradient(values):
    made = ds.tensor_create(ds.DTYPE_F32, [len(values)])
    made.memory().cast("f")[:] = array.array("f", values)
    return made


for step in range(300):
    ds.gather_params(engine, [w, b])
    weights = list(ds.engine_param_view(engine, w).memory().cast("f"))
    bias = ds.engine_param_view(engine, b).memory().cast("f")[0]
    errors = [weights[0] * x0 + weights[1] * x1 + bias - t for (x0, x1), t in zip(rows, truth)]
    ds.release_params(engine, [w, b])
    sums = [sum(e * x[k] for e, x in zip(errors, rows)) / 8 for k in range(2)]
    ds.grad_ready(engine, w, gradient(sums))
    # The gradient is written into the engine's memory.
    place = ds.engine_grad_view(engine, b)
    place.memory().cast("f")[0] = sum(errors) / 8
    ds.grad_ready(engine, b, place)
    ds.backward(engine)
    ds.step(engine)

ds.engine_evaluate(engine, 1)
try:
    ds.backward(engine)
    raise SystemExit("an evaluation takes no backward")
except libds.Error as error:
    assert error.status == ds.ERROR_STATE, error
ds.engine_evaluate(engine, 0)

loss = sum(e * e for e in errors) / 16
assert loss < 1e-3, (loss, weights, bias)
print("w", weights, "b", bias, "loss", loss)
