"""Memory outlives the objects that it came from: views and arrays keep their elements, whatever is destroyed first."""
import array
import gc
import json
import sys

import libds.lowlevel as ds

try:
    import numpy as np
except ImportError:
    np = None


def churn():
    """Reuses freed memory, so that a dangling view would show it."""
    gc.collect()
    sizes = [4, 16, 1000] * 20 + [1 << 20] * 3
    rubbish = [ds.tensor_create(ds.DTYPE_F32, [size]) for size in sizes]
    for tensor in rubbish:
        memory = tensor.memory().cast("f")
        memory[:] = array.array("f", [9.0]) * len(memory)


# A view of a tensor to which nothing else refers.
view = ds.tensor_create(ds.DTYPE_F32, [1 << 20]).memory().cast("f")
churn()
assert not any(view), "a view shows another tensor's memory"
view[5] = 2.5
churn()
assert view[5] == 2.5
part = view[4:8]
del view
churn()
assert list(part) == [0, 2.5, 0, 0]

# Explicit destruction, as at the end of a with-block; a second view over the same tensor; an empty tensor.
tensor = ds.tensor_create(ds.DTYPE_F32, [1 << 20])
first, second = tensor.memory().cast("f"), tensor.memory().cast("f")
first[3] = 1.5
tensor.__swig_destroy__(tensor)
del tensor
churn()
assert second[3] == 1.5
first.release()
churn()
assert second[3] == 1.5
assert ds.tensor_create(ds.DTYPE_F32, [0, 3]).memory().nbytes == 0

# Buffers that a call accepts stay valid.
CONFIG = json.dumps({
    "train_batch_size": 2,
    "gradient_clipping": 0,
    "frozen_parameters": ["late"],
    "optimizer": {"type": "SGD", "params": {"lr": 0.5}},
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
})


def host(elements):
    engine = ds.engine_create(None, CONFIG, None, None)
    params = [ds.engine_param_add(engine, name, 0, [elements]) for name in ("a", "b", "late")]
    ds.engine_start(engine)
    for param, value in zip(params, (1.0, 2.0, 3.0)):
        ds.engine_write(engine, param, "master", array.array("f", [value]) * elements)
    return engine, params[:2]


def step(engine, params, elements):
    ds.gather_params(engine, params)
    views = [ds.engine_param_view(engine, p) for p in params]
    ds.release_params(engine, params)
    for param in params:
        grad = ds.tensor_create(ds.DTYPE_F32, [elements])
        grad.memory().cast("f")[:] = array.array("f", [1.0]) * elements
        ds.grad_ready(engine, param, grad)
    ds.backward(engine)
    ds.step(engine)
    return views


# The views of a lease stay readable after the lease has ended: after steps that compile the program again and move arenas, after freezing,
# and after the end of the engine.
for elements in (300, 1 << 18):
    engine, params = host(elements)
    ds.gather_params(engine, params)
    kept = [ds.engine_param_view(engine, p) for p in params]
    memories = [v.memory().cast("f") for v in kept]
    assert [m[elements - 1] for m in memories] == [1.0, 2.0]
    arrays = [np.from_dlpack(v) for v in kept] if np else []
    ds.release_params(engine, params)
    del kept
    for _ in range(4):
        for old in step(engine, params, elements):
            memories.append(old.memory().cast("f"))
    ds.engine_freeze(engine, [params[0]], 1)
    # The states of the late parameter make the arena larger.
    ds.engine_freeze(engine, [params[0], params[1] + 1], 0)
    step(engine, params, elements)
    touched = sum(sum(m[:: 64]) for m in memories) + sum(float(a.sum()) for a in arrays)
    values = array.array("f", [0.0]) * elements
    ds.engine_read(engine, params[0], "master", values)
    assert set(values) == {1.0 - 5 * 0.5}, set(values)
    ds.engine_read(engine, params[1] + 1, "master", values)
    assert set(values) == {3.0}, set(values)
    ds.gather_params(engine, params)
    last = ds.engine_param_view(engine, params[1])
    del engine
    churn()
    touched += sum(sum(m[:: 64]) for m in memories) + sum(float(a.sum()) for a in arrays)
    assert list(last.memory().cast("f")[:2]) == [2.0 - 5 * 0.5] * 2
    for memory in memories:
        memory[0] = memory[elements - 1] = touched
    if np:
        array_of_lease = np.from_dlpack(last)
        del last
        churn()
        assert array_of_lease[elements - 1] == 2.0 - 5 * 0.5

# Memory is freed in the end: the test makes a hundred large views and their tensors.
if sys.platform == "linux":
    def resident():
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * 4096

    before = resident()
    for _ in range(100):
        large = ds.tensor_create(ds.DTYPE_F32, [4 << 20]).memory()
        large[0] = 1
        del large
    gc.collect()
    assert resident() - before < 256 << 20, "views keep memory that nobody uses"
