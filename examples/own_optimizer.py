"""An optimizer of the host's own: RMSprop in NumPy, whose state libds partitions, offloads and saves.

    PYTHONPATH=build/python python3 examples/own_optimizer.py
"""
import libds
import numpy as np


def rms_prop(e):
    """Updates consecutive elements of one parameter in place."""
    values, grads, square = (np.asarray(array) for array in (e.values, e.grads, e.states[0]))
    square[:] = 0.9 * square + 0.1 * grads * grads
    values[:] -= e.lr * grads / (np.sqrt(square) + 1e-8)


config = {"train_batch_size": 1, "optimizer": {"type": "Callback", "params": {"lr": 0.01, "states": ["square_avg"]}}}
target = np.array([1, 2, 3], np.float32)
with libds.DelegateEngine(config, threads=1, update=rms_prop) as engine:
    w = engine.add_param("w", 3)
    engine.start()
    for _ in range(500):
        engine.grad_ready(w, np.array(engine.read(w)) - target)
        engine.backward()
        engine.step()
    print("states:", ", ".join(engine.state_names))
    print("w:", " ".join(f"{value:.1f}" for value in np.array(engine.read(w))))
